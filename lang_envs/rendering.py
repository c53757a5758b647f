"""Shared by the families' pictures: colours, drawings as rows of shapes, their painter, and lines of text.

Drawings are painted too large, scaled down for smooth edges, and cached; a frame pastes cached drawings.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from lang_envs.core import LangEnv

_OVERSAMPLING = 4
_LONGEST_ACTION = 120  # characters; models may write anything

_PALETTE = """
ink #2f2a33, text #f4f1ea, faded #a9b1c0, strip #2b3242, card #414b60, good #2fa866, veil #1d2438, sight #f7d774,
counter #aeb6bf, joint #98a1ac, mat #c3cad2, floor #f6ecd9, floor-dark #ecdfc5, wood #d9a566, bark #a87338,
steel #eef2f5, iron #6b7480, hatch #37445c, awning #d8493f, white #ffffff, slate #8d93a3, brass #f2bf3d,
bronze #a97a12, skin #f6c79c, tan #b67d4e, cheek #ee9f83, red #e23b2e, maroon #8f1b14, coral #ff8f7a, seed #ffd98a,
green #57b13d, moss #2b6b22, lime #a8dd74, mint #d8f2ae, violet #a44f9d, plum #5f2460, lilac #d9a3d6, bowl #3f7fca,
navy #1d3f70, sky #b9d4f0, no-pip #fbf3e4,
brick #4b5468, hall #cdbb9d, threshold #b39f7e, plank #e2bf93, groove #cfa674, tile #e3eff4, grout #cfe1ea,
sage #cfe0d2, aqua #bcdcea, mauve #ddd3ea, sand #f0dfc4, hair #6b4226, cocoa #7a4a2a, teal #3d8f8c, deep #265e60,
rug #8fbfb4, fringe #6fa79b, glow #fff3c4, night #1b2030, dusk #4d5a72, couch #d98465, seam #a5553c, hollow #c37052
"""
COLORS: dict[str, str] = dict(entry.split() for entry in _PALETTE.split(","))
"""Hexadecimal colour of each name."""

# Shapes in a box of 64 units: kind, points (then angles of a chord, radius of a box, width of a line), fill, outline.
_THINGS = """
tomato: ellipse 7 13 57 59 red maroon; ellipse 15 24 25 35 coral; line 32 16 35 5 4 moss;
  polygon 32 12 47 9 40 17 48 25 36 21 32 30 28 21 16 25 24 17 17 9 green moss
chopped tomato: ellipse 3 9 35 41 red maroon; ellipse 8 14 30 36 coral; ellipse 12 18 18 24 seed;
  ellipse 20 18 26 24 seed; ellipse 16 26 22 32 seed; ellipse 29 7 61 39 red maroon; ellipse 34 12 56 34 coral;
  ellipse 38 16 44 22 seed; ellipse 46 16 52 22 seed; ellipse 42 24 48 30 seed; ellipse 17 27 49 59 red maroon;
  ellipse 22 32 44 54 coral; ellipse 26 36 32 42 seed; ellipse 34 36 40 42 seed; ellipse 30 44 36 50 seed
lettuce: ellipse 3 20 29 46 green moss; ellipse 35 20 61 46 green moss; ellipse 6 34 32 60 green moss;
  ellipse 32 34 58 60 green moss; ellipse 10 6 36 32 green moss; ellipse 28 6 54 32 green moss;
  ellipse 11 12 53 56 lime moss; ellipse 20 22 44 54 mint green; line 32 26 32 52 3 green;
  line 24 32 32 40 40 32 2 green
chopped lettuce: line 8 30 26 16 7 green moss; line 38 14 57 26 7 green moss; line 6 44 26 52 7 green moss;
  line 20 36 46 31 7 lime moss; line 22 14 36 30 7 mint moss; line 14 34 28 45 7 mint moss; line 31 49 50 34 7 lime moss
onion: polygon 24 22 29 4 32 10 36 3 40 22 lilac plum; ellipse 7 16 57 58 violet plum; ellipse 20 16 44 58 violet lilac;
  line 26 62 32 58 38 62 2 plum
chopped onion: ellipse 4 7 36 39 violet plum; ellipse 8 11 32 35 white; ellipse 13 16 27 30 lilac violet;
  ellipse 33 16 61 44 violet plum; ellipse 37 20 57 40 white; ellipse 42 25 52 35 lilac violet;
  ellipse 15 32 43 60 violet plum; ellipse 19 36 39 56 white; ellipse 24 41 34 51 lilac violet
pancake: ellipse 2 36 62 60 white slate; ellipse 9 29 55 53 wood bark; ellipse 9 21 55 45 wood bark;
  ellipse 9 13 55 37 wood bark; polygon 27 17 40 18 44 24 40 29 28 30 22 25 sight bronze
cheese: polygon 4 33 42 10 60 33 seed bronze; box 4 32 60 55 2 brass bronze; ellipse 11 38 24 50 seed bronze;
  ellipse 33 35 42 43 seed bronze; ellipse 45 42 56 52 seed bronze; ellipse 35 18 46 27 brass bronze
hamburger: chord 5 8 59 58 180 360 wood bark; line 22 20 24 19 3 no-pip; line 32 15 34 15 3 no-pip;
  line 42 20 44 21 3 no-pip; box 7 42 57 58 7 wood bark; box 5 39 59 47 4 cocoa ink; box 4 31 60 38 3 lime moss;
  polygon 14 38 44 38 30 46 sight
apple pie: chord 4 0 60 60 8 172 steel iron; ellipse 2 17 62 47 wood bark; ellipse 9 21 55 43 awning maroon;
  line 15 25 47 41 4 seed bark; line 27 22 53 35 4 seed bark; line 11 34 35 42 4 seed bark;
  line 49 25 17 41 4 seed bark; line 37 22 11 35 4 seed bark; line 53 33 31 43 4 seed bark
pizza: ellipse 3 5 61 61 wood bark; ellipse 9 11 55 55 brass awning; ellipse 16 18 27 29 red maroon;
  ellipse 36 16 47 27 red maroon; ellipse 41 33 52 44 red maroon; ellipse 25 40 36 51 red maroon;
  ellipse 27 29 35 37 red maroon; ellipse 14 35 20 41 moss; ellipse 30 20 35 25 moss
dishes: ellipse 2 42 62 62 white slate; ellipse 4 36 60 56 sky navy; ellipse 4 30 60 50 white slate;
  ellipse 12 33 52 46 steel slate; ellipse 36 12 54 32 steel bowl; box 16 12 40 36 5 bowl navy;
  ellipse 16 8 40 18 sky navy
clothes: polygon 20 8 27 14 37 14 44 8 61 20 53 33 47 29 47 58 17 58 17 29 11 33 3 20 coral maroon;
  line 18 42 46 42 4 white; line 18 50 46 50 4 white
lasagna: box 3 34 61 58 6 bowl navy; box 9 16 55 42 4 seed bronze; line 10 30 54 30 4 awning; line 10 37 54 37 4 awning;
  polygon 9 17 55 17 52 25 44 21 36 28 27 22 19 27 12 22 brass bronze; ellipse 28 14 36 20 green moss
chips: polygon 12 5 52 5 49 13 53 34 50 53 53 60 11 60 14 53 11 34 15 13 awning maroon;
  ellipse 17 18 47 46 sight bronze; ellipse 22 24 36 34 wood bark; ellipse 29 31 43 41 wood bark;
  line 16 53 48 53 2 maroon
popcorn: ellipse 10 12 28 30 no-pip bronze; ellipse 36 12 54 30 no-pip bronze; ellipse 22 5 42 25 seed bronze;
  ellipse 17 17 33 33 seed bronze; ellipse 32 17 48 33 no-pip bronze; polygon 9 26 55 26 49 61 15 61 white maroon;
  polygon 17 27 26 27 28 60 22 60 awning; polygon 37 27 47 27 42 60 36 60 awning
milk: polygon 18 20 27 6 45 6 48 20 white slate; box 26 2 46 8 1 steel slate; box 16 18 48 61 3 white slate;
  polygon 17 38 26 33 37 40 47 35 47 56 17 56 bowl; ellipse 22 23 29 30 ink; ellipse 35 24 43 32 ink
lemonade: polygon 13 16 51 16 46 61 18 61 white slate; polygon 16 26 48 26 45 58 20 58 sight; line 34 52 44 3 3 awning;
  ellipse 2 6 26 30 sight bronze; ellipse 7 11 21 25 no-pip brass; box 24 34 33 43 2 no-pip; box 31 45 39 53 2 no-pip
candle: polygon 32 2 39 14 36 20 28 20 25 14 brass awning; line 32 18 32 26 2 ink; box 22 24 42 52 3 no-pip mat;
  line 27 25 27 34 3 mat; box 12 50 52 60 4 bronze cocoa
notebook: box 10 5 55 60 4 violet plum; box 20 14 48 28 2 white plum; line 24 21 44 21 2 slate; line 8 14 15 14 3 iron;
  line 8 26 15 26 3 iron; line 8 38 15 38 3 iron; line 8 50 15 50 3 iron
umbrella: line 32 6 32 54 40 59 46 53 4 bark; chord 3 6 61 64 180 360 bowl navy; chord 22 6 42 64 180 360 sky navy;
  line 32 2 32 7 3 bark
spoon: line 24 58 41 26 6 steel iron; ellipse 32 4 54 32 steel iron; ellipse 38 9 48 23 mat
newspaper: box 7 8 57 58 2 no-pip slate; line 13 17 51 17 6 ink; box 13 26 31 42 1 mat slate; line 36 28 51 28 2 slate;
  line 36 34 51 34 2 slate; line 36 40 51 40 2 slate; line 13 47 51 47 2 slate; line 13 52 43 52 2 slate
teapot: chord 38 18 62 46 0 360 floor teal; line 14 34 5 24 6 teal deep; ellipse 10 18 52 58 teal deep;
  ellipse 27 8 37 18 brass bronze; chord 17 14 45 36 180 360 teal deep; box 20 54 42 61 3 deep; ellipse 24 32 38 46 mint
parcel: polygon 3 24 14 12 50 12 61 24 seed bark; box 3 23 61 59 2 wood bark; box 26 13 38 59 0 seed;
  box 14 42 30 52 1 white
"""
# Scenery; a drawing that is not square has a box of its own pixels.
_SCENERY = """
floor: box 0 0 64 64 0 floor
floor-dark: box 0 0 64 64 0 floor-dark
planks: box 0 0 64 64 0 plank; line 0 0 64 0 1 groove; line 0 16 64 16 1 groove; line 0 32 64 32 1 groove;
  line 0 48 64 48 1 groove; line 12 0 12 16 1 groove; line 44 16 44 32 1 groove; line 26 32 26 48 1 groove;
  line 54 48 54 64 1 groove
tile: box 0 0 64 64 0 grout; box 2 2 62 62 0 tile
counter: box 0 0 64 64 0 joint; box 1 1 63 63 5 counter
mat: box 7 7 57 57 10 mat joint
board: box 2 5 62 60 8 wood bark; line 8 44 44 44 1 bark; box 49 31 57 46 3 ink;
  polygon 49 10 53 10 57 16 57 32 49 32 steel iron
hatch: box 0 0 64 64 0 hatch; box 0 0 64 11 0 white; box 0 0 8 11 0 awning; box 16 0 24 11 0 awning;
  box 32 0 40 11 0 awning; box 48 0 56 11 0 awning; polygon 3 31 13 21 13 27 20 27 20 35 13 35 13 41 brass
bell: chord 8 14 56 62 180 360 brass bronze; ellipse 27 4 37 14 brass bronze; box 3 37 61 48 4 steel iron
cook: ellipse 17 54 32 63 ink; ellipse 32 54 47 63 ink; box 13 38 51 60 10 white slate; ellipse 17 14 47 44 skin tan;
  ellipse 24 25 28 31 ink; ellipse 36 25 40 31 ink; ellipse 19 31 25 36 cheek; ellipse 39 31 45 36 cheek;
  line 27 35 30 38 34 38 37 35 2 maroon; polygon 22 43 32 46 42 43 38 51 32 47 26 51 awning;
  ellipse 13 2 31 18 white slate; ellipse 33 2 51 18 white slate; ellipse 21 0 43 17 white slate;
  box 18 11 46 22 3 white slate
hand: ellipse 6 6 58 58 skin tan
bowl back: ellipse 3 20 61 42 sky navy
bowl front: chord 3 2 61 60 4 176 bowl navy; box 22 56 42 62 2 bowl navy;
  line 4 33 8 37 16 40 24 42 32 42 40 42 48 40 56 37 60 33 2 navy
person: ellipse 17 57 31 63 ink; ellipse 33 57 47 63 ink; box 20 47 31 60 2 navy ink; box 33 47 44 60 2 navy ink;
  box 14 37 50 53 9 teal deep; polygon 25 38 39 38 32 46 white deep
sitting person: box 14 34 50 50 9 teal deep; polygon 25 35 39 35 32 43 white deep; box 14 45 31 58 6 navy ink;
  box 33 45 50 58 6 navy ink; ellipse 13 55 31 63 ink; ellipse 33 55 51 63 ink
head: ellipse 14 4 50 40 hair ink; ellipse 16 10 48 43 skin tan;
  polygon 15 24 17 12 26 6 40 6 48 14 49 24 46 24 43 17 34 19 23 17 18 24 hair
face: ellipse 23 25 28 32 ink; ellipse 36 25 41 32 ink; ellipse 18 32 25 37 cheek; ellipse 39 32 46 37 cheek;
  line 27 36 30 39 34 39 37 36 2 maroon
face aside: ellipse 18 25 23 32 ink; ellipse 30 25 35 32 ink; ellipse 34 32 41 37 cheek;
  line 20 36 23 39 27 39 29 36 2 maroon
refused: chord 4 4 60 54 0 360 white slate; polygon 12 44 4 62 30 52 white; line 22 19 42 39 7 awning;
  line 42 19 22 39 7 awning
microwave: box 18 12 96 62 5 steel iron; box 24 17 72 57 4 hatch ink; line 33 50 50 26 3 dusk; line 42 52 58 30 3 dusk;
  line 69 24 69 50 3 iron; box 78 18 91 26 2 night; ellipse 79 31 90 42 iron; box 78 47 91 53 2 good
oven: box 18 0 78 64 4 slate ink; box 18 0 78 13 4 iron ink; ellipse 24 3 31 10 steel; ellipse 35 3 42 10 steel;
  ellipse 65 3 72 10 awning; box 24 17 72 57 4 hatch ink; line 28 21 68 21 3 steel; line 33 52 50 30 3 dusk;
  line 42 54 58 34 3 dusk
dishwasher: box 18 0 78 64 4 steel iron; box 18 0 78 13 4 mat iron; box 24 4 42 9 2 night; ellipse 66 4 72 10 good;
  box 24 17 72 57 4 steel slate; line 30 22 66 22 3 iron; line 40 44 56 44 2 mat; line 40 49 56 49 2 mat
washing machine: box 18 0 78 64 4 steel iron; box 18 0 78 12 4 mat iron; box 23 3 42 9 2 white slate;
  ellipse 64 2 73 11 iron; ellipse 25 14 71 60 slate iron; ellipse 31 20 65 54 hatch ink; line 39 42 50 26 3 dusk
cupboard: box 18 0 78 64 4 wood bark; box 18 0 78 10 4 seed bark; box 24 17 72 57 2 wood bark;
  box 29 22 67 52 2 seed bark; ellipse 61 34 67 40 cocoa
door ajar: box 24 17 72 57 3 glow ink; line 27 55 69 55 2 seed; polygon 24 17 4 9 4 64 24 57 mat iron
round door ajar: ellipse 25 14 71 60 slate iron; ellipse 30 19 66 55 glow ink; ellipse 4 14 26 60 slate iron;
  ellipse 8 20 22 54 sky iron
TV: polygon 40 54 56 54 62 63 34 63 iron ink; box 2 2 94 57 4 night ink; box 7 7 89 52 2 hatch; line 20 44 44 14 4 dusk;
  line 34 46 58 16 4 dusk
lit TV: polygon 40 54 56 54 62 63 34 63 iron ink; box 2 2 94 57 4 night ink; box 7 7 89 52 2 sky;
  ellipse 64 11 79 26 sight; polygon 7 40 28 24 46 38 64 28 89 44 89 52 7 52 green;
  polygon 7 46 36 38 89 50 89 52 7 52 moss; ellipse 16 12 34 20 white; ellipse 26 9 42 19 white
sofa: box 12 60 24 70 2 cocoa; box 104 60 116 70 2 cocoa; box 10 2 118 46 11 couch seam; line 64 6 64 32 1 seam;
  box 16 33 63 58 6 couch seam; box 65 33 112 58 6 couch seam; box 10 54 118 66 4 couch seam;
  box 2 22 20 66 8 couch seam; box 108 22 126 66 8 couch seam
dent: ellipse 22 37 57 51 hollow; line 18 40 24 43 1 seam; line 61 40 56 43 1 seam
coffee table: box 8 28 16 46 1 cocoa; box 96 28 104 46 1 cocoa; polygon 10 4 102 4 110 22 2 22 wood bark;
  box 2 22 110 32 2 wood bark
kitchen: box 0 0 404 50 0 sage; box 60 8 132 38 2 white slate; box 64 12 94 36 0 sky; box 98 12 128 36 0 sky;
  polygon 64 36 64 30 80 24 94 31 94 36 lime; polygon 98 36 98 31 112 25 128 30 128 36 lime;
  box 54 35 138 42 2 white slate; box 8 22 50 96 4 steel iron; line 9 50 49 50 2 slate; line 44 30 44 44 3 iron;
  line 44 58 44 80 3 iron; box 54 70 400 96 2 wood bark; line 110 72 110 94 1 bark; line 166 72 166 94 1 bark;
  line 222 72 222 94 1 bark; line 278 72 278 94 1 bark; line 334 72 334 94 1 bark; box 52 50 400 71 3 no-pip joint;
  box 68 54 124 66 4 mat iron; box 73 57 119 64 3 slate; line 96 56 96 47 103 47 3 iron; box 0 96 404 99 0 floor-dark;
  box 160 190 168 206 1 cocoa; box 268 190 276 206 1 cocoa; polygon 162 158 274 158 282 184 154 184 wood bark;
  box 154 184 282 194 2 wood bark
chair: box 6 24 10 50 1 cocoa; box 34 24 38 50 1 cocoa; box 6 0 38 28 5 wood bark;
  polygon 8 24 36 24 41 36 3 36 seed bark; box 3 36 41 41 2 wood bark
bathroom: box 0 0 236 50 0 aqua; line 4 36 232 36 2 white; box 158 6 202 38 4 white slate; box 162 10 198 34 3 sky;
  line 168 30 180 14 2 white; box 172 54 188 84 3 white slate; box 152 46 208 60 6 white slate;
  ellipse 162 48 198 56 sky slate; line 180 50 180 42 3 iron; box 22 44 62 66 5 white slate;
  ellipse 20 58 64 92 white slate; ellipse 27 63 57 84 sky slate; box 100 112 224 190 26 white slate;
  box 110 121 214 178 22 sky bowl; ellipse 120 126 140 146 white; ellipse 134 122 150 138 white;
  ellipse 124 140 136 152 white; line 208 140 196 140 196 147 4 iron; box 26 150 76 180 6 coral maroon;
  box 31 155 71 175 4 seed
bedroom: box 0 0 232 50 0 mauve; box 176 6 210 50 2 hall cocoa; ellipse 181 27 186 32 cocoa;
  box 22 40 126 80 8 wood bark; box 26 66 122 190 8 white slate; box 34 72 71 94 8 no-pip slate;
  box 77 72 114 94 8 no-pip slate; box 24 104 124 196 9 lilac plum; box 24 104 124 118 6 mauve plum;
  box 134 66 164 98 3 wood bark; line 136 80 162 80 1 bark; ellipse 147 84 151 88 cocoa; line 149 66 149 54 3 bronze;
  polygon 142 40 156 40 162 56 136 56 sight bronze; ellipse 142 136 220 190 rug fringe;
  ellipse 150 142 212 184 rug fringe
living room: box 0 0 408 50 0 sand; box 20 6 54 50 2 hall cocoa; ellipse 45 27 50 32 cocoa;
  box 118 112 284 206 12 rug fringe; box 124 118 278 200 9 rug fringe; box 136 62 244 92 3 bark cocoa;
  line 190 64 190 90 1 cocoa; polygon 70 44 92 44 88 62 74 62 couch seam; ellipse 64 22 82 46 green moss;
  ellipse 80 22 98 46 green moss; ellipse 72 10 90 40 lime moss; polygon 368 182 392 182 388 204 372 204 couch seam;
  ellipse 360 158 381 186 green moss; ellipse 379 158 400 186 green moss; ellipse 370 147 391 182 lime moss
"""


def _parsed(rows: str) -> dict[str, str]:
    return dict(row.split(": ") for row in re.split(r"\n(?! )", rows.strip()))


THINGS = frozenset(_parsed(_THINGS))
"""Nouns with a drawing of a thing to carry."""
_SHAPES = _parsed(_SCENERY) | _parsed(_THINGS)

font = lru_cache(maxsize=8)(ImageFont.load_default)


@lru_cache(maxsize=256)
def sprite(name: str, size: int, box: tuple[int, int] = (64, 64)) -> Image.Image:
    """Return a drawing with a transparent ground; treat it as constant.

    Args:
        name: Name of the drawing.
        size: Width in pixels; the height follows from the box.
        box: Width and height of the box that the drawing's numbers refer to.
    """
    canvas = Image.new("RGBA", (_OVERSAMPLING * size, _OVERSAMPLING * size * box[1] // box[0]))
    for shape in _SHAPES[name].split(";"):
        _paint(ImageDraw.Draw(canvas), shape.split(), _OVERSAMPLING * size / box[0])
    return canvas.reduce(_OVERSAMPLING)


def _paint(draw: ImageDraw.ImageDraw, words: list[str], scale: float) -> None:
    kind, numbers = words[0], [float(word) for word in words[1:] if word not in COLORS]
    fill, edge = [*(COLORS[word] for word in words if word in COLORS), None][:2]
    points, pen = [scale * number for number in numbers], round(2 * scale)
    if kind == "line":
        if edge:
            draw.line(points[:-1], edge, round(points[-1]) + 2 * pen)
        draw.line(points[:-1], fill, round(points[-1]), joint="curve")
    elif kind == "chord":
        draw.chord(points[:4], numbers[4], numbers[5], fill, edge, pen)
    elif kind == "box":
        draw.rounded_rectangle(points[:4], points[4], fill, edge, pen)
    else:
        getattr(draw, kind)(points, fill, edge, width=pen)


def paste(canvas: Image.Image, image: Image.Image, x: int, y: int) -> None:
    """Lay a drawing over a canvas."""
    canvas.paste(image, (x, y), image)


def put(canvas: Image.Image, image: Image.Image, foot: tuple[int, int]) -> None:
    """Lay a drawing over a canvas so that it stands on a point."""
    paste(canvas, image, foot[0] - image.width // 2, foot[1] - image.height)


def veil(image: Image.Image, strength: float) -> Image.Image:
    """Return a darkened copy, for things out of sight."""
    return Image.blend(image, Image.new("RGB", image.size, COLORS["veil"]), strength)


def card(image: Image.Image, box: tuple[int, int, int, int], caption: str) -> None:
    """Draw a panel with a caption at its top."""
    ImageDraw.Draw(image).rounded_rectangle(box, 8, COLORS["card"])
    write(image, ((box[0] + box[2]) // 2, box[1] + 9), caption, 11, "faded", "mm")


def badge(image: Image.Image, box: tuple[int, int, int, int], text: str, color: str) -> None:
    """Draw a short word on a coloured ground."""
    ImageDraw.Draw(image).rounded_rectangle(box, 6, COLORS[color])
    write(image, ((box[0] + box[2]) // 2, (box[1] + box[3] + 1) // 2), text, 15, "text", "mm")


@lru_cache(maxsize=256)
def tag(text: str, ground: str, room: int = 160) -> Image.Image:
    """Return a label of at most `room` pixels; treat it as constant."""
    text = fitted(text, 11, room - 10)
    image = Image.new("RGBA", (round(font(11).getlength(text)) + 10, 15))
    ImageDraw.Draw(image).rounded_rectangle((0, 0, image.width - 1, 14), 5, COLORS[ground])
    write(image, (image.width // 2, 8), text, 11, "ink" if ground == "sight" else "text", "mm")
    return image


def fitted(text: str, size: int, room: int) -> str:
    """Return as much of a line as is at most `room` pixels wide."""
    text = text[: room // 3 + 1]  # no printable letter is narrower than 3 pixels
    length = font(size).getlength
    if length(text) <= room:
        return text
    n_kept = bisect_right(range(len(text)), room, key=lambda n: round(length(f"{text[:n]}..."))) - 1
    return f"{text[:n_kept]}..."


def write(image: Image.Image, at: tuple[int, int], text: str, size: int, color: str, anchor: str = "lm") -> None:
    """Write a line; from its left end (`lm`), as much of it as fits."""
    if anchor == "lm":
        text = fitted(text, size, image.width - at[0] - 4)
    ImageDraw.Draw(image).text(at, text, COLORS[color], font(size), anchor)


def one_line(text: str) -> str:
    """Return a text as one line: models and users may write anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def last_action(env: LangEnv[Any], n_elapsed: int) -> str:
    """Return the last action of an environment as one line.

    Args:
        env: Environment of the action.
        n_elapsed: Units of time that have passed in the episode.
    """
    if env.last_action is None:
        return "(unfinished sentence)" if n_elapsed else "(none yet)"
    text = one_line(env.last_action)
    return text if len(text) <= _LONGEST_ACTION else f"{text[:_LONGEST_ACTION]}..."


def score(env: LangEnv[Any], clock: str, n_elapsed: int, limit: int) -> str:
    """Return clock and return of the episode, as one line."""
    rounded = round(env.episode_return, 3) + 0.0  # + 0.0: no "-0.000"
    return f"{clock} {n_elapsed} / {limit}    Return {rounded:+.3f}"
