#!/usr/bin/env python3
"""Writes the small image files of this folder and, with Pillow, what they must decode to (NAME.ppm of NAME.*).

usage: make_images.py   (needs Pillow; made with 11.3: from 13 on it resizes in whichever order of passes is cheaper, one unit apart)
"""
import os

from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
W, H = 23, 17


def picture(seed=0):
    image = Image.new("RGB", (W, H))
    image.putdata([((x * 11 + seed * 40) % 256, (y * 15 + x * seed) % 256, (x * y + 97 * seed) % 256) for y in range(H) for x in range(W)])
    return image


def save(name, image, **options):
    path = os.path.join(HERE, name)
    image.save(path, **options)
    Image.open(path).convert("RGB").save(os.path.splitext(path)[0] + ".ppm")


rgb = picture()
alpha = rgb.convert("RGBA")
alpha.putalpha(Image.linear_gradient("L").resize((W, H)))
save("baseline.jpg", rgb, quality=80)
save("progressive.jpg", rgb, quality=90, progressive=True, subsampling=0)
save("grey.jpg", rgb.convert("L"), quality=80)
save("ink.jpg", rgb.convert("CMYK"), quality=90)
save("rgb.png", rgb)
save("alpha.png", alpha)
save("palette.png", rgb.quantize(16), transparency=3)
save("bits.png", rgb.convert("1"))
save("grey_alpha.png", alpha.convert("LA"))
save("lossy.webp", rgb, quality=80)
save("lossless.webp", alpha, lossless=True)
save("moving.webp", picture(1), save_all=True, append_images=[picture(2)], duration=100, lossless=True)
save("still.gif", rgb.quantize(64), interlace=1)
save("frames.gif", picture(1).quantize(32), save_all=True, append_images=[picture(2).quantize(32)], duration=100)

# Bicubic resampling: the picture above to other sizes.
for width, height in ((23, 40), (9, 17), (64, 5), (3, 2)):
    rgb.resize((width, height)).save(os.path.join(HERE, "rgb_%dx%d.ppm" % (width, height)))
