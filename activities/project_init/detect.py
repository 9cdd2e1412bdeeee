"""Stage detect-tech-stack: what a project is written in, built with, started and tested by (S1 L67-70)."""

from activities.project_init.commands import find_commands
from activities.project_init.conclusions import conclude
from activities.project_init.entrypoints import find_entry_points
from activities.project_init.files import SourceTree
from activities.project_init.languages import count_languages
from activities.project_init.licenses import find_licenses
from activities.project_init.listing import Progress
from activities.project_init.manifests.registry import read_manifests
from activities.project_init.records import Evidence, Manifest, Technology, TechStack
from activities.project_init.runners import ci_files, find_ci, find_tasks
from activities.project_init.services import find_images, find_services
from activities.project_init.technologies import technologies_of

_MAIN_FIRST = ("pyproject.toml", "package.json", "Cargo.toml", "go.mod", "pom.xml")


def detect(tree: SourceTree, progress: Progress | None = None) -> TechStack:
    """Find what a project is made of, each finding with the file and line that shows it.

    Args:
        tree: The surveyed project. Its files are read again, within its limits, and never executed.
        progress: Called regularly; raising from it stops the work.

    Returns:
        The findings, and the decisions, constraints and open questions that follow from them.
    """
    report = progress or (lambda _: None)
    languages = count_languages(tree, tree.listing.files, report)
    manifests, manifests_left = read_manifests(tree, report)
    tasks = find_tasks(tree)
    images, container_starts = find_images(tree)
    entry_points, entries_left = find_entry_points(tree, manifests, report)
    technologies = (*technologies_of(manifests), *_runners_in_use(tree), *images, *find_services(tree))
    commands, commands_left = find_commands(tree, manifests, technologies, entry_points, tasks)
    name, description = _title(tree, manifests)
    findings = TechStack(
        name=name,
        description=description,
        languages=languages,
        manifests=manifests,
        technologies=technologies,
        commands=commands,
        ci=find_ci(tree),
        entry_points=(*entry_points, *container_starts),
        licenses=find_licenses(tree, manifests, report),
    )
    unread = {"manifests": manifests_left, "entry points": entries_left, "commands": commands_left}
    return conclude(tree, findings, {what: count for what, count in unread.items() if count})


def _title(tree: SourceTree, manifests: tuple[Manifest, ...]) -> tuple[str, str]:
    """Return name and description from the least deep manifest that has a name, else the folder's name."""

    def rank(manifest: Manifest) -> tuple[int, int]:
        file = manifest.path.rpartition("/")[2]
        known = _MAIN_FIRST.index(file) if file in _MAIN_FIRST else len(_MAIN_FIRST)
        return manifest.path.count("/"), known

    top = [each for each in sorted(manifests, key=rank) if each.name and "/" not in each.path]
    described = next((each.description for each in top if each.description), "")
    return (top[0].name if top else tree.listing.name), described


def _runners_in_use(tree: SourceTree) -> tuple[Technology, ...]:
    """Return task runners and CI services, known by their files."""
    files = {
        "make": tree.named("Makefile", "GNUmakefile", "makefile"),
        "just": tree.named("justfile", "Justfile", ".justfile"),
        "Task": tree.named("Taskfile.yml", "Taskfile.yaml"),
        "tox": tree.named("tox.ini", "tox.toml"),
        "nox": tree.named("noxfile.py"),
        "pre-commit": tree.named(".pre-commit-config.yaml"),
    }
    found = [
        Technology(name=name, category="task runner", evidence=Evidence(path=paths[0]))
        for name, paths in files.items()
        if paths and "/" not in paths[0]
    ]
    services: dict[str, str] = {}
    for path in ci_files(tree):
        services.setdefault(_ci_service(path), path)
    for name, path in services.items():
        found.append(Technology(name=name, category="continuous integration", evidence=Evidence(path=path)))
    return tuple(found)


def _ci_service(path: str) -> str:
    names = {
        ".github": "GitHub Actions",
        ".gitlab-ci.yml": "GitLab CI",
        ".circleci": "CircleCI",
        ".travis.yml": "Travis CI",
        "azure-pipelines": "Azure Pipelines",
        "bitbucket": "Bitbucket Pipelines",
        ".drone": "Drone",
        ".woodpecker": "Woodpecker",
        ".buildkite": "Buildkite",
        ".cirrus": "Cirrus CI",
        ".forgejo": "Forgejo Actions",
        ".gitea": "Gitea Actions",
        "appveyor": "AppVeyor",
        "Jenkinsfile": "Jenkins",
        ".ci": "CI scripts",
    }
    return next(name for start, name in names.items() if path.startswith(start))
