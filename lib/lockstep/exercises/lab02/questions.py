"""The questions of lab 02.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.questions import Option, Question

QUESTIONS = (
    Question(
        "02.q1",
        "im2col copies every pixel into up to 25 places (5x5 kernel), and the number of multiply-adds stays the same. "
        "Why is it so much faster than the loops?",
        (
            Option(
                "It computes fewer products, since equal pixels are shared.",
                "It computes the same products. The copies are shared by nobody: that is what they cost.",
            ),
            Option(
                "The copies put the convolution into the form of one large matrix product, for which fast code exists.",
                "A GEMM reads each number into the cache once and uses it many times, several multiply-adds per "
                "instruction. A loop in Python pays about a microsecond for each of them.",
                right=True,
            ),
            Option(
                "The copies lie in the cache, so nothing has to be read from memory.",
                "The column matrix is larger than the image and often does not fit into the cache. It is the form that "
                "helps, not the place.",
            ),
            Option(
                "It works on several processor cores.",
                "Here it ran on one thread. More cores help both ways alike.",
            ),
        ),
    ),
    Question(
        "02.q2",
        "A convolution with bias sees 32 images and has 20x20 outputs for each channel. The loss is a mean over the "
        "images. What is the gradient of one bias?",
        (
            Option(
                "The sum of the output's gradient over the 32 images and 400 pixels of that channel.",
                "The bias was added 12,800 times, and each of them hands its gradient back. The mean over images is "
                "already inside the output's gradient.",
                right=True,
            ),
            Option(
                "Their mean over images and pixels.",
                "That is 12,800 times too small. The mean of the loss has been taken once, in the loss.",
            ),
            Option(
                "The sum over the pixels, and the mean over the images.",
                "The images were averaged in the loss: its gradient is divided by 32 when it arrives.",
            ),
            Option(
                "One gradient for each pixel.",
                "A gradient has the shape of what it belongs to, and a bias is one number.",
            ),
        ),
    ),
    Question(
        "02.q3",
        "Your network trains to 93 % where a friend's reaches 95 % with the same settings. What do you do first to "
        "find out whether a backward function is wrong?",
        (
            Option(
                "Train longer: a wrong gradient would not have reached 93 %.",
                "It can. In this lab a wrong bias gradient and a turned kernel both trained on.",
            ),
            Option(
                "Lower the learning rate and see whether the loss still falls.",
                "With a slightly wrong gradient it falls too, only to another place.",
            ),
            Option(
                "Compare the loss curves of several seeds.",
                "They tell you that something differs, perhaps, and not what.",
            ),
            Option(
                "gradcheck in float64: compare each gradient with finite differences, layer by layer.",
                "It takes seconds, names the layer and needs no training. In float64, since in float32 the differences "
                "drown in rounding.",
                right=True,
            ),
        ),
    ),
    Question(
        "02.q4",
        "In training, batch norm takes mean and variance from the batch. What follows for the gradient of one pixel?",
        (
            Option(
                "It depends on that pixel's own output gradient only, divided by the standard deviation.",
                "That is right in evaluation, where the statistics are constants. In training each pixel changes them.",
            ),
            Option(
                "It depends on the output gradients of all pixels of its image.",
                "Statistics are taken over the batch: pixels of other images change this one's gradient as well.",
            ),
            Option(
                "It depends on the output gradients of all pixels of its channel, in all images of the batch.",
                "Through mean and variance each pixel changes every output of its channel. When the batch is spread "
                "over several ranks, that is a reason for them to talk.",
                right=True,
            ),
            Option(
                "It is zero, since the mean is taken off.",
                "The elements add up to zero in each channel; each by itself is not zero.",
            ),
        ),
    ),
)
