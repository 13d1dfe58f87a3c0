"""What `lockstep release` prints.

Floor 4, room `course`.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.course.release.toml import Release


def shown(release: Release, files: list[Path]) -> str:
    """The files for others, the points by lab, and where the private file is."""
    lines = [f"for others: {path} ({path.stat().st_size:,} bytes)" for path in files]
    for lab in release.labs:
        listed = release.listed(lab.number)
        forms = sum(bool(one.variants) for one in listed)
        varied = f", {forms} of them in variants" if forms else ""
        core = sum(one.points for one in listed if one.core)
        lines.append(
            f"lab {lab.number}: {len(listed)} exercises{varied}, {sum(one.points for one in listed)} points "
            f"({core} without the stretch ones)"
        )
    if release.dropped:
        lines.append(f"dropped: {', '.join(release.dropped)}")
    lines.append(
        f"for you alone: {release.path}. It holds the seed of the hidden cases: keep it, and never publish it."
    )
    return "\n".join(lines)
