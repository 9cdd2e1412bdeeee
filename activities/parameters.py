"""The parameters of a shipped pipeline that are texts: paths, mostly."""

from typing import Any

from baton import StageContext
from baton.errors import BatonError

_USAGE = {
    "code_review": "--param source=DIR --param output=DIR",
    "compliance_review": "--param mailbox=FILE --param policy=FILE --param records=DIR --param output=DIR",
    "contract_review": "--param source=FILE --param output=DIR",
    "project_init": "--param source=DIR --param output=DIR",
}


def text_parameter(context: StageContext[Any], name: str, pipeline: str, error_type: type[BatonError]) -> str:
    """Return a required parameter; raise ``error_type`` with the pipeline's usage if it is not a text."""
    value = context.params.get(name)
    if not isinstance(value, str) or not value:
        raise error_type(
            f"{pipeline} needs the parameter {name!r}; found {value!r}. "
            f"Start it with: baton run {pipeline} --goal … {_USAGE[pipeline]}"
        )
    return value
