"""Results for other programs: Gradescope's `results.json` and JUnit XML, which has no names.

Floor 4, room `course`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.result import Result, number

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gradescope_json(result: Result, titles: Mapping[str, str]) -> str:
    """What Gradescope shows for one submission: a test for each exercise, visible, with its sentence and hint.

    `score` is after the late policy; the raw score is in `output`, as Gradescope has its own lateness too.
    """
    said = [f"{number(result.raw)} of {number(result.of)} points."]
    if result.penalty:
        said.append(f"{number(result.penalty)} points were taken off: {number(result.hours_late or 0)} hours late.")
    said += [result.failure or result.submission.problem, *result.submission.warnings]
    tests = [_test(one, titles.get(one.exercise, "")) for one in result.outcomes]
    whole = {"score": result.points, "output": "\n".join(filter(None, said)), "output_format": "text", "tests": tests,
             "stdout_visibility": "hidden", "visibility": "visible"}  # fmt: skip
    return json.dumps(whole, indent=1, ensure_ascii=False)


def _test(one: Outcome, title: str) -> dict[str, object]:
    output = "\n".join(filter(None, (f"{one.verdict}. {one.sentence}".strip(), one.hint and f"Hint: {one.hint}")))
    return {
        "number": one.exercise, "name": f"{one.exercise} {title}".strip(), "score": one.points, "max_score": one.of,
        "status": "passed" if one.verdict == "passed" else "failed", "output": output, "output_format": "text",
        "visibility": "visible",
    }  # fmt: skip


def junit_xml(results: Sequence[Result]) -> str:
    """A test suite for each submission, by pseudonym; a case for each exercise."""
    root = ElementTree.Element("testsuites", name="lockstep grade")
    for result in results:
        bad = [one for one in result.outcomes if one.verdict not in ("passed", "not attempted", "needs marking")]
        idle = [one for one in result.outcomes if one.verdict in ("not attempted", "needs marking")]
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"lab {result.lab} {result.pseudonym}", tests=str(len(result.outcomes) or 1),
            failures=str(len(bad)), skipped=str(len(idle)), errors=str(int(bool(result.failure))),
        )  # fmt: skip
        if result.failure:
            case = ElementTree.SubElement(suite, "testcase", classname=f"lab{result.lab}", name="grading")
            ElementTree.SubElement(case, "error", message=_plain(result.failure))
        for one in result.outcomes:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"lab{result.lab}", name=one.exercise, time=f"{one.seconds:.3f}"
            )
            if one in idle:
                ElementTree.SubElement(case, "skipped", message=one.verdict)
            elif one in bad:
                message = f"{one.verdict}: {one.mistake}" if one.mistake else one.verdict
                ElementTree.SubElement(case, "failure", message=_plain(message), type=one.verdict)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    return NOT_XML.sub("", text)
