# SPDX-License-Identifier: Apache-2.0
"""`evenkeel convert-policy F`: a policy of the descheduler as a RebalancerConfiguration."""

from __future__ import annotations

import sys

import click

from common.config.loading import file_text
from common.visible import visible
from evenkeel.output import emit
from evenkeel.policy import convert
from evenkeel.shell import Call, command


@click.command("convert-policy", short_help="Translate a policy of the descheduler.")
@click.argument("file", metavar="F", type=click.Path())
@command
async def convert_policy_command(call: Call, file: str) -> None:
    """Write the RebalancerConfiguration that a policy of the descheduler becomes.

    The file is a DeschedulerPolicy (descheduler/v1alpha2), or a ConfigMap with one. What each
    plugin and argument becomes, what differs and what has no counterpart is told on stderr. The
    configuration only observes; no cluster is needed.
    """
    found = convert(file_text(file), file)
    for note in found.notes:
        print(visible(str(note)), file=sys.stderr)
    if call.output.for_people:
        sys.stdout.write(found.text)  # a file, which no terminal may wrap
        return
    document = {"configuration": found.configuration, "notes": found.notes}
    emit("ConvertedPolicy", document, call.output, lambda: found.text)
