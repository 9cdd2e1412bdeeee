"""Other agent layers, each as shipped and in a separate environment, to compare Baton with.

Every side does the same job: four agents in a row, each answered by a script, hand on a state of 1 KB. A module here
is one side, or what the sides share:

    comparison         the measurements
    crews              the processes of both sides, as `benchmarks.load` drives them
    job                the state, and what the scripted models answer
    environment        the folder that the peers are installed into, from `requirements.txt`
    worker             the process of a peer, run by that environment's interpreter
    pydantic_ai        pydantic-ai's durable agents, on Temporal
    openai_agents      the OpenAI Agents plugin for Temporal
    langgraph          the LangGraph plugin for Temporal; its graph is in `graph`
    langgraph_sqlite   LangGraph in one process, without a server
    dbos_sqlite        DBOS in one process, without a server
    ours_*             Baton's pipelines of the same agents, their stages, and their worker
"""
