"""Which packages are worth naming to a reader, and what they are for.

A project may depend on hundreds of packages; these are the ones that tell how it is built. Keys are
`ecosystem` and the package's name as its registry knows it, so that the `click` of one ecosystem is not
taken for another's. A key that ends in `*` names a family; the first family that fits is the one.
"""

from collections.abc import Iterable, Iterator

from activities.project_init.records import Manifest, Technology

_TABLE = """
python | web framework | Django=django FastAPI=fastapi Flask=flask Starlette=starlette aiohttp=aiohttp
python | web framework | Tornado=tornado Pyramid=pyramid Sanic=sanic Litestar=litestar Falcon=falcon
python | web framework | Bottle=bottle Quart=quart Django-REST-framework=djangorestframework gRPC=grpcio
python | web server | Uvicorn=uvicorn Gunicorn=gunicorn Hypercorn=hypercorn Granian=granian
python | user interface | Streamlit=streamlit Gradio=gradio Dash=dash Textual=textual Rich=rich PySide=pyside6
python | user interface | PyQt=pyqt6 Kivy=kivy prompt-toolkit=prompt-toolkit pygame=pygame
python | command line | Typer=typer Click=click Fire=fire docopt=docopt
python | data validation | Pydantic=pydantic attrs=attrs marshmallow=marshmallow msgspec=msgspec jsonschema=jsonschema
python | database | SQLAlchemy=sqlalchemy Alembic=alembic SQLModel=sqlmodel Peewee=peewee Tortoise=tortoise-orm
python | database | psycopg=psycopg psycopg2=psycopg2 psycopg2=psycopg2-binary asyncpg=asyncpg aiosqlite=aiosqlite
python | database | PyMongo=pymongo Motor=motor Redis=redis PyMySQL=pymysql DuckDB=duckdb Neo4j=neo4j
python | database | Elasticsearch=elasticsearch Cassandra=cassandra-driver Supabase=supabase
python | jobs and messaging | Temporal=temporalio Celery=celery RQ=rq Dramatiq=dramatiq Airflow=apache-airflow
python | jobs and messaging | Prefect=prefect Dagster=dagster Kafka=kafka-python Kafka=confluent-kafka Pika=pika
python | jobs and messaging | APScheduler=apscheduler NATS=nats-py Procrastinate=procrastinate
python | data and science | NumPy=numpy pandas=pandas Polars=polars SciPy=scipy Matplotlib=matplotlib
python | data and science | PySpark=pyspark Dask=dask Arrow=pyarrow NetworkX=networkx SymPy=sympy xarray=xarray
python | machine learning | PyTorch=torch TensorFlow=tensorflow JAX=jax scikit-learn=scikit-learn XGBoost=xgboost
python | machine learning | Transformers=transformers spaCy=spacy LightGBM=lightgbm Keras=keras
python | language models | LangChain=langchain* LangGraph=langgraph LlamaIndex=llama-index* OpenAI=openai
python | language models | Anthropic=anthropic MCP=mcp LiteLLM=litellm Pydantic-AI=pydantic-ai
python | HTTP client | HTTPX=httpx Requests=requests urllib3=urllib3
python | observability | OpenTelemetry=opentelemetry-* Sentry=sentry-sdk structlog=structlog Loguru=loguru
python | observability | Prometheus=prometheus-client
python | cloud | boto3=boto3 Google-Cloud=google-cloud-* Azure=azure-* Kubernetes=kubernetes
python | security | cryptography=cryptography PyJWT=pyjwt Authlib=authlib passlib=passlib
python | templates | Jinja=jinja2 Mako=mako
python | web scraping | Scrapy=scrapy Beautiful-Soup=beautifulsoup4 Selenium=selenium
python | asynchronous | AnyIO=anyio Trio=trio uvloop=uvloop
python | tests | pytest=pytest Hypothesis=hypothesis coverage=coverage tox=tox nox=nox pytest=pytest-* nose2=nose2
python | tests | Playwright=playwright Robot-Framework=robotframework behave=behave Locust=locust
python | lint and types | Ruff=ruff mypy=mypy Pyright=pyright Flake8=flake8 Pylint=pylint Bandit=bandit ty=ty
python | lint and types | import-linter=import-linter pre-commit=pre-commit
python | formatting | Black=black isort=isort yapf=yapf
python | documentation | Sphinx=sphinx MkDocs=mkdocs* pdoc=pdoc
python | build | setuptools=setuptools Hatch=hatchling Poetry=poetry-core uv=uv-build Flit=flit-core PDM=pdm-backend
python | build | maturin=maturin scikit-build=scikit-build-core Cython=cython pybind11=pybind11 meson=meson-python
node | web framework | Express=express Fastify=fastify NestJS=@nestjs/core Koa=koa Hono=hono Hapi=@hapi/hapi
node | web framework | Next.js=next Nuxt=nuxt Remix=@remix-run/react SvelteKit=@sveltejs/kit Astro=astro Gatsby=gatsby
node | user interface | React=react Vue=vue Svelte=svelte Angular=@angular/core Solid=solid-js Preact=preact Lit=lit
node | user interface | React-Native=react-native Expo=expo Electron=electron Ink=ink jQuery=jquery Three.js=three
node | user interface | Tailwind=tailwindcss MUI=@mui/material Bootstrap=bootstrap D3=d3
node | state | Redux=@reduxjs/toolkit Redux=redux Zustand=zustand MobX=mobx Pinia=pinia
node | state | TanStack-Query=@tanstack/react-query
node | database | Prisma=@prisma/client Prisma=prisma TypeORM=typeorm Sequelize=sequelize Drizzle=drizzle-orm Knex=knex
node | database | Mongoose=mongoose MongoDB=mongodb PostgreSQL=pg MySQL=mysql2 Redis=redis Redis=ioredis
node | database | SQLite=better-sqlite3 Supabase=@supabase/supabase-js Firebase=firebase
node | data validation | Zod=zod Joi=joi Ajv=ajv Yup=yup
node | jobs and messaging | Temporal=@temporalio/worker Temporal=@temporalio/client BullMQ=bullmq Kafka=kafkajs
node | API | GraphQL=graphql Apollo=@apollo/server Apollo=@apollo/client tRPC=@trpc/server gRPC=@grpc/grpc-js
node | API | Socket.IO=socket.io Axios=axios
node | language models | OpenAI=openai Anthropic=@anthropic-ai/sdk LangChain=langchain Vercel-AI=ai
node | language models | MCP=@modelcontextprotocol/sdk
node | language | TypeScript=typescript ts-node=ts-node tsx=tsx Babel=@babel/core
node | tests | Jest=jest Vitest=vitest Mocha=mocha Jasmine=jasmine AVA=ava Playwright=@playwright/test Cypress=cypress
node | tests | Testing-Library=@testing-library/* Supertest=supertest Karma=karma tap=tap
node | lint and types | ESLint=eslint Biome=@biomejs/biome Stylelint=stylelint Oxlint=oxlint Husky=husky
node | formatting | Prettier=prettier
node | build | Vite=vite webpack=webpack Rollup=rollup esbuild=esbuild Parcel=parcel Turborepo=turbo Nx=nx tsup=tsup
node | build | Lerna=lerna Gulp=gulp Grunt=grunt
node | documentation | Storybook=storybook Docusaurus=@docusaurus/core VitePress=vitepress TypeDoc=typedoc
node | observability | OpenTelemetry=@opentelemetry/* Sentry=@sentry/* Pino=pino Winston=winston
go | web framework | Gin=github.com/gin-gonic/gin Echo=github.com/labstack/echo* Fiber=github.com/gofiber/fiber*
go | web framework | chi=github.com/go-chi/chi* Gorilla=github.com/gorilla/mux gRPC=google.golang.org/grpc
go | command line | Cobra=github.com/spf13/cobra urfave/cli=github.com/urfave/cli* Viper=github.com/spf13/viper
go | user interface | Bubble-Tea=github.com/charmbracelet/bubbletea
go | database | GORM=gorm.io/gorm pgx=github.com/jackc/pgx* sqlx=github.com/jmoiron/sqlx pq=github.com/lib/pq
go | database | go-redis=github.com/redis/go-redis* MongoDB=go.mongodb.org/mongo-driver* ent=entgo.io/ent
go | database | SQLite=github.com/mattn/go-sqlite3 SQLite=modernc.org/sqlite
go | jobs and messaging | Temporal=go.temporal.io/sdk NATS=github.com/nats-io/nats.go
go | jobs and messaging | Kafka=github.com/segmentio/kafka-go
go | tests | Testify=github.com/stretchr/testify Ginkgo=github.com/onsi/ginkgo* gomock=go.uber.org/mock
go | observability | zap=go.uber.org/zap OpenTelemetry=go.opentelemetry.io/* zerolog=github.com/rs/zerolog
go | observability | Prometheus=github.com/prometheus/client_golang logrus=github.com/sirupsen/logrus
go | cloud | Kubernetes=k8s.io/client-go AWS=github.com/aws/aws-sdk-go*
rust | web framework | Axum=axum Actix=actix-web Rocket=rocket warp=warp hyper=hyper Tonic=tonic Tower=tower
rust | asynchronous | Tokio=tokio async-std=async-std smol=smol Rayon=rayon
rust | command line | clap=clap structopt=structopt
rust | user interface | Ratatui=ratatui egui=egui Tauri=tauri Leptos=leptos Yew=yew Bevy=bevy Dioxus=dioxus
rust | database | SQLx=sqlx Diesel=diesel SeaORM=sea-orm rusqlite=rusqlite Redis=redis MongoDB=mongodb
rust | data formats | Serde=serde serde_json=serde_json Prost=prost
rust | HTTP client | Reqwest=reqwest
rust | errors | anyhow=anyhow thiserror=thiserror
rust | observability | tracing=tracing log=log OpenTelemetry=opentelemetry
rust | bindings | PyO3=pyo3 wasm-bindgen=wasm-bindgen napi=napi
rust | tests | Criterion=criterion proptest=proptest mockall=mockall insta=insta rstest=rstest
jvm | web framework | Spring-Boot=org.springframework.boot:* Quarkus=io.quarkus* Micronaut=io.micronaut*
jvm | web framework | Ktor=io.ktor:* Jakarta-EE=jakarta.platform:* Vert.x=io.vertx:* Jersey=org.glassfish.jersey*
jvm | web framework | Spring=org.springframework:* gRPC=io.grpc:* Netty=io.netty:*
jvm | user interface | Compose=androidx.compose* AndroidX=androidx.* JavaFX=org.openjfx:*
jvm | database | Hibernate=org.hibernate* jOOQ=org.jooq:* PostgreSQL=org.postgresql:* MySQL=com.mysql:*
jvm | database | H2=com.h2database:*
jvm | database | Flyway=org.flywaydb:* Liquibase=org.liquibase:* MyBatis=org.mybatis* MongoDB=org.mongodb:*
jvm | jobs and messaging | Temporal=io.temporal:* Kafka=org.apache.kafka:* RabbitMQ=com.rabbitmq:*
jvm | data formats | Jackson=com.fasterxml.jackson* Gson=com.google.code.gson:* Protobuf=com.google.protobuf*
jvm | language | Lombok=org.projectlombok:* Guava=com.google.guava:* Kotlin=org.jetbrains.kotlin* Scala=org.scala-lang*
jvm | tests | JUnit=org.junit* JUnit=junit:junit Mockito=org.mockito:* AssertJ=org.assertj:* TestNG=org.testng:*
jvm | tests | Testcontainers=org.testcontainers:* Kotest=io.kotest:* Spock=org.spockframework:*
jvm | observability | SLF4J=org.slf4j:* Logback=ch.qos.logback:* Log4j=org.apache.logging.log4j:*
jvm | observability | Micrometer=io.micrometer:*
jvm | build | Surefire=maven-surefire-plugin Shade=maven-shade-plugin Compiler=maven-compiler-plugin
jvm | build | Spring-Boot-plugin=spring-boot-maven-plugin Android=com.android.*
jvm | lint and types | Checkstyle=*checkstyle* Spotless=*spotless* SpotBugs=*spotbugs*
jvm | lint and types | detekt=io.gitlab.arturbosch.detekt
ruby | web framework | Rails=rails Sinatra=sinatra Hanami=hanami Puma=puma
ruby | database | PostgreSQL=pg MySQL=mysql2 SQLite=sqlite3 Redis=redis Sequel=sequel Mongoid=mongoid
ruby | jobs and messaging | Sidekiq=sidekiq Resque=resque
ruby | tests | RSpec=rspec* Minitest=minitest Capybara=capybara Cucumber=cucumber
ruby | lint and types | RuboCop=rubocop* Sorbet=sorbet Standard=standard
ruby | build | Rake=rake Jekyll=jekyll
php | web framework | Laravel=laravel/framework Symfony=symfony/framework-bundle Symfony=symfony/symfony Slim=slim/slim
php | web framework | Laminas=laminas/laminas-mvc CakePHP=cakephp/cakephp Yii=yiisoft/yii2
php | command line | Symfony-Console=symfony/console
php | database | Doctrine=doctrine/*
php | tests | PHPUnit=phpunit/phpunit PHPUnit-bridge=symfony/phpunit-bridge Pest=pestphp/pest Behat=behat/behat
php | lint and types | PHPStan=phpstan/phpstan Psalm=vimeo/psalm PHP-CS-Fixer=friendsofphp/php-cs-fixer
dotnet | web framework | Blazor=microsoft.aspnetcore.components* ASP.NET=microsoft.aspnetcore* gRPC=grpc.aspnetcore
dotnet | database | Entity-Framework=microsoft.entityframeworkcore* Dapper=dapper Npgsql=npgsql*
dotnet | tests | xUnit=xunit* NUnit=nunit* MSTest=mstest* Moq=moq FluentAssertions=fluentassertions
dotnet | observability | Serilog=serilog* OpenTelemetry=opentelemetry*
dotnet | jobs and messaging | Temporal=temporalio MassTransit=masstransit*
dart | user interface | Flutter=flutter Riverpod=flutter_riverpod Bloc=flutter_bloc
dart | tests | test=test flutter_test=flutter_test
elixir | web framework | Phoenix=phoenix LiveView=phoenix_live_view Plug=plug
elixir | database | Ecto=ecto Ecto=ecto_sql Postgrex=postgrex
elixir | lint and types | Credo=credo Dialyxir=dialyxir
cmake | libraries | Boost=boost OpenSSL=openssl Qt=qt* Threads=threads GoogleTest=gtest Protobuf=protobuf
"""


def _normal(ecosystem: str, name: str) -> str:
    name = name.lower()
    return name.replace("_", "-") if ecosystem == "python" else name


def _parse(text: str) -> tuple[dict[tuple[str, str], tuple[str, str]], list[tuple[str, str, tuple[str, str]]]]:
    exact: dict[tuple[str, str], tuple[str, str]] = {}
    families: list[tuple[str, str, tuple[str, str]]] = []
    for row in filter(None, text.splitlines()):
        ecosystem, category, entries = (part.strip() for part in row.split("|"))
        for entry in entries.split():
            shown, _, package = entry.partition("=")
            known = (shown.replace("-", " ") if shown[0].isupper() else shown, category)
            if "*" in package:
                families.append((ecosystem, package, known))
            else:
                exact[ecosystem, package] = known
    return exact, families


_EXACT, _FAMILIES = _parse(_TABLE)


def known_as(ecosystem: str, package: str) -> tuple[str, str] | None:
    """Return the usual name and the category of a package, or None for one not worth naming.

    Example:
        >>> known_as("python", "FastAPI"), known_as("node", "@testing-library/react"), known_as("go", "click")
        (('FastAPI', 'web framework'), ('Testing Library', 'tests'), None)
    """
    name = _normal(ecosystem, package)
    exact = _EXACT.get((ecosystem, name))
    if exact is not None:
        return exact
    for family, pattern, known in _FAMILIES:
        if family == ecosystem and _in_family(name, pattern):
            return known
    return None


def _in_family(name: str, pattern: str) -> bool:
    core = pattern.strip("*")
    return core in name if pattern.startswith("*") else name.startswith(core)


def built_with(manifests: Iterable[Manifest]) -> frozenset[str]:
    """Return the names of the technologies that the programs themselves rest on: not of tests, tools and plugins.

    A language counts wherever it is asked for: its compiler is a tool.
    """
    shipped = []
    for manifest in manifests:
        kept = [
            each
            for each in manifest.dependencies
            if each.group not in ("development", "build")
            or (known_as(manifest.ecosystem, each.name) or ("", ""))[1] == "language"
        ]
        shipped.append(manifest.model_copy(update={"dependencies": tuple(kept), "tools": ()}))
    return frozenset(each.name for each in technologies_of(shipped))


def technologies_of(manifests: Iterable[Manifest]) -> tuple[Technology, ...]:
    """Return the technologies that manifests declare: each once, with its first evidence, sorted by category.

    A runtime dependency's evidence is preferred to a development one's. Indirect dependencies do not count:
    nobody chose them.
    """
    found: dict[str, tuple[tuple[bool, bool], Technology]] = {}
    for rank, technology in _candidates(manifests):
        known = found.get(technology.name)
        if known is None or rank < known[0]:
            found[technology.name] = (rank, technology)
    return tuple(sorted((each for _, each in found.values()), key=lambda each: (each.category, each.name)))


def _candidates(manifests: Iterable[Manifest]) -> Iterator[tuple[tuple[bool, bool], Technology]]:
    """Yield what is worth naming with its rank: the package itself before its plugins, runtime before tools."""
    for manifest in manifests:
        itself = _normal(manifest.ecosystem, manifest.name)  # with its extras, or for its own tools
        declared = [
            (each.name, each.requirement, each.group == "runtime", each.evidence)
            for each in manifest.dependencies
            if each.group != "indirect" and _normal(manifest.ecosystem, each.name) != itself
        ]
        declared += [(each.name, each.version, False, each.evidence) for each in manifest.tools]
        for name, version, at_runtime, evidence in declared:
            known = known_as(manifest.ecosystem, name)
            if known is not None:
                is_plugin = (manifest.ecosystem, _normal(manifest.ecosystem, name)) not in _EXACT
                technology = Technology(
                    name=known[0], category=known[1], version="" if is_plugin else version, evidence=evidence
                )
                yield (is_plugin, not at_runtime), technology
