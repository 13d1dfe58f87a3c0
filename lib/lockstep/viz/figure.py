"""A figure that says in words what it shows.

Floor 3. Wraps matplotlib's own `Figure`, drawn without pyplot: no display, no global state, nothing
left open. In a notebook it is an image with a text alternative.
"""

from __future__ import annotations

import base64
import html
import io
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure as Canvas
from PIL import Image

SCREEN = 96  # css pixels per inch
LIMIT = 45_000  # bytes of an image, which make 60 kB of text in a notebook
CODE = np.array([1, 1 << 8, 1 << 16], dtype=np.int32)  # red, green, blue as one number, as they lie in memory
EFFORT = 8  # of 9, for zlib: half the time for 2 % more bytes
ALIKE = 24  # of 255: distance of two colours that the eye forgives at the edge of a letter
INK = "#1a1a1a"
QUIET = "#595959"  # 7:1 on white

# Okabe and Ito 2008, told apart with any common colour blindness
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.7,
    "svg.fonttype": "none",
}


def our_style() -> AbstractContextManager:
    """The look of all figures, whatever style sheet the notebook has chosen: `with our_style(): ...`."""
    return matplotlib.style.context(["default", STYLE])


@dataclass(frozen=True)
class Figure:
    """matplotlib: the figure, to change or combine. alt: what it shows, numbers included."""

    matplotlib: Canvas
    alt: str

    def png(self) -> bytes:
        """The image as a notebook shows it: sharp if that stays below `LIMIT` bytes, else a little coarser."""
        for scale, colors in ((1.4, 48), (1.1, 32)):
            image = small_png(pixels(self.matplotlib, scale), colors)
            if len(image) <= LIMIT:
                break
        return image

    def save(self, path: str | Path) -> Path:
        """Write the figure in the format that the path's ending names (.png, .svg, .pdf); the alt text goes along."""
        path = Path(path)
        about = {".png": "Description", ".svg": "Description", ".pdf": "Subject"}.get(path.suffix.lower())
        with our_style():
            self.matplotlib.savefig(path, dpi=SCREEN * 2, metadata={about: self.alt} if about else None)
        return path

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return image_tag(self.png(), self.alt, round(self.matplotlib.get_figwidth() * SCREEN))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": self.alt}


def pixels(figure: Canvas, scale: float) -> Image.Image:
    """Draw at `scale` image pixels per css pixel."""
    raw = io.BytesIO()
    with our_style():
        figure.savefig(raw, format="rgba", dpi=SCREEN * scale)
    width = int(figure.get_figwidth() * SCREEN * scale)  # as matplotlib rounds it
    return Image.frombytes("RGBA", (width, raw.tell() // 4 // width), raw.getvalue()).convert("RGB")


def small_png(image: Image.Image, colors: int) -> bytes:
    """PNG in a palette of at most `colors`: a third of the size, and flat areas keep their exact colour.

    Takes the most frequent colour, strikes out those much like it, and goes on with what is left; so
    a rare colour of its own kind (a small patch of the legend) still gets its place. Pillow's own
    palettes average colours, which turned that patch brown.
    """
    count, rgb = map(np.array, zip(*image.getcolors(image.width * image.height), strict=True))
    palette: list[np.ndarray] = []
    while len(palette) < colors and count.any():
        palette.append(rgb[count.argmax()])
        count[((rgb - palette[-1]) ** 2).sum(axis=1) < ALIKE**2] = 0
    nearest = np.stack([((rgb - color) ** 2).sum(axis=1) for color in palette]).argmin(axis=0)
    chosen = np.empty(1 << 24, dtype=np.uint8)  # by colour; memory that nobody touches costs nothing
    chosen[rgb @ CODE] = nearest
    codes = np.frombuffer(image.tobytes("raw", "RGBX"), dtype="<u4") & 0xFFFFFF
    indexed = Image.fromarray(chosen[codes].reshape(image.height, image.width), mode="P")
    indexed.putpalette(np.concatenate(palette).astype(np.uint8).tobytes())
    out = io.BytesIO()
    indexed.save(out, format="png", compress_level=EFFORT)
    return out.getvalue()


def image_tag(png: bytes, alt: str, width: int) -> str:
    """`<img>` with the image inside it; `width` in css pixels, narrower where the page is."""
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<img alt="{html.escape(alt, quote=True)}" src="data:image/png;base64,{data}" '
        f'style="width:{width}px;max-width:100%;height:auto">'
    )
