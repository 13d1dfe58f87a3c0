"""Exercise 06.1: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `splitting.py`, wrong solutions are in `splitting_wrong.py` and
`splitting_wrong_stages.py`, how they show is in `splitting_symptoms.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab06 import splitting_symptoms as shows
from lockstep.exercises.lab06 import splitting_wrong as wrong
from lockstep.exercises.lab06 import splitting_wrong_stages as stages
from lockstep.exercises.symptoms import matches, says

MISTAKES = (
    Mistake(
        "the input does not require a gradient",
        wrong.forgets_that_the_input_learns,
        "`x.grad` is None after backward. What arrived is numbers without a history, and autograd keeps no gradient "
        "for such a tensor unless you ask: call `requires_grad_()` on it before the stage runs.",
        symptom=says("only tensors travel"),
    ),
    Mistake(
        "detaches the activation",
        wrong.detaches_the_activation,
        "You call backward on a tensor that was detached: it has the numbers of `y`, but no way back into the "
        "stage. Send the numbers, and keep the attached `y` for its backward.",
        symptom=matches("does not require grad"),
    ),
    Mistake(
        "gradient not sent back",
        wrong.never_sends_a_gradient_back,
        "Only the last rank has gradients. Backward ends where the graph ends, at the tensor that arrived; the rank "
        "before cannot know what its `y` did to the loss until you send it that gradient.",
        symptom=shows.nobody_waits_and_nobody_learns,
    ),
    Mistake(
        "waits for a gradient that nobody sends",
        wrong.waits_for_a_gradient_that_nobody_sends,
        "The ranks before the last wait for a gradient, and the last one has already returned. Whoever received an "
        "activation owes its sender the gradient of it.",
        symptom=shows.waits_for_the_last,
    ),
    Mistake(
        "receives the gradient before it has sent",
        wrong.receives_before_it_sends,
        "You wait for the gradient of an activation that you have not sent yet, and the next rank waits for that "
        "activation. Forward comes first: send `y`, then receive.",
        symptom=shows.waits_crosswise,
    ),
    Mistake(
        "begins backward with ones",
        wrong.begins_backward_with_ones,
        "Your stage makes up its own gradient: `y.sum().backward()` differentiates the sum of the activation, not the "
        "loss. The loss is on the last rank, and its gradient comes to you through the ranks behind you.",
    ),
    Mistake(
        "passes on what it got",
        wrong.passes_on_what_it_got,
        "You send back the gradient of your *output*, as it came. The rank before needs the gradient of *its* output, "
        "which is your input: it is in `x.grad` after backward.",
        symptom=shows.sends_the_output_gradient,
    ),
    Mistake(
        "sends back before backward",
        wrong.sends_before_backward,
        "The gradient that you send back is still zero: `x.grad` is filled by your own backward, so that has to run "
        "first. Backward goes through the ranks one after the other, from the last to the first.",
    ),
    Mistake(
        "sends the activation back",
        wrong.sends_the_activation_back,
        "What goes back is the activation itself. The rank before waits for the *gradient* of it, which has the same "
        "shape: `x.grad`.",
    ),
    Mistake(
        "runs every layer on every rank",
        stages.runs_every_layer_everywhere,
        "Each rank has only the layers between two cuts: rank r those from `bounds[r]` to `bounds[r + 1]`, with "
        "bounds `[0, *cuts, len(layers)]`. Yours runs others as well, or others instead.",
        symptom=says("shapes cannot be multiplied"),
    ),
    Mistake(
        "leaves out the last layer",
        stages.leaves_out_the_last_layer,
        "The last layer is missing. A slice ends before its second bound, so the last rank's bound is "
        "`len(layers)`, not one less.",
        symptom=shows.stops_at_the_loss(last=True, alone=True),
    ),
    Mistake(
        "does not return the loss",
        stages.keeps_the_loss_to_itself,
        "Every gradient is right. Only the loss is missing: the last rank returns it, the others None.",
    ),
    Mistake(
        "takes equally many layers",
        stages.takes_equally_many_layers,
        "Every rank takes equally many layers. Where they are cut is given: rank r has those from `bounds[r]` to "
        "`bounds[r + 1]`, with bounds `[0, *cuts, len(layers)]`.",
        symptom=shows.has_equally_many,
    ),
    Mistake(
        "takes the next rank's first layer",
        stages.takes_the_first_layer_of_the_next,
        "Your stage runs one layer too many. A cut is the index of the first layer of the *next* stage, and a slice ends "
        "before its second bound: no + 1 is needed.",
        symptom=shows.runs_one_layer_more,
    ),
    Mistake(
        "skips the layer at the cut",
        stages.skips_the_layer_at_the_cut,
        "The last rank's output is not that of the whole network: a layer is missing on the way. A cut is the index of the "
        "*first* layer of the next stage, which has to run it.",
        symptom=shows.stops_at_the_loss(last=True, alone=False),
    ),
    Mistake(
        "receives into a tensor like x",
        wrong.receives_into_a_tensor_like_x,
        "You receive the gradient into a tensor like `x`. What comes back is the gradient of what you *sent*, and has the "
        "shape of `y`.",
        symptom=shows.receives_like_x,
    ),
    Mistake(
        "begins backward with nothing",
        wrong.begins_backward_with_nothing,
        "`y.backward()` without an argument is for a loss, one number. Your `y` has many: give it the gradient that came, "
        "`y.backward(gradient)`.",
        symptom=says("only for scalar outputs"),
    ),
    Mistake(
        "takes what recv returns",
        wrong.takes_what_recv_returns,
        "`comm.recv(tensor, src)` fills the tensor that you give it, and returns the rank that sent it. Go on with the "
        "tensor.",
        symptom=says("'int' object has no attribute"),
    ),
    Mistake(
        "makes a loss on every rank",
        stages.makes_a_loss_of_its_own,
        "A rank before the last calls `loss`. Its `y` is an activation, not the network's output; only the last rank has "
        "that, and the others begin backward with the gradient that comes back.",
        symptom=shows.stops_at_the_loss(last=False, alone=False),
    ),
    Mistake(
        "never receives",
        wrong.never_receives,
        "The ranks send to each other, and nobody receives. Every rank but the first begins with a `comm.recv` of what the "
        "rank before sends; a send ends when the other side receives.",
        symptom=shows.sends_facing_each_other,
    ),
    Mistake(
        "sends gradients to rank 0",
        wrong.sends_gradients_to_rank_0,
        "A gradient goes to a rank that does not wait for it. It belongs to whoever sent you the activation: the rank "
        "before, `comm.rank - 1`.",
        symptom=shows.sends_past_its_neighbour,
    ),
    Mistake(
        "runs backward twice",
        wrong.runs_backward_twice,
        "The gradients are twice as large: backward runs twice, and the second one is added to the first.",
    ),
    Mistake(
        "never calls backward",
        stages.never_calls_backward,
        "No parameter has a gradient, on any rank. The last rank has to call `backward()` on the loss; the others follow "
        "with what comes back.",
        symptom=shows.nobody_learns,
    ),
    Mistake(
        "divides by the number of ranks",
        wrong.divides_by_the_ranks,
        "You divide the gradient by the number of ranks. In lab 05 each rank had images of its own, and a mean was asked; "
        "here each has layers of its own, and the gradient goes on as it is.",
    ),
    Mistake(
        "takes a step as well",
        stages.takes_a_step_as_well,
        "You change the parameters. Only their gradients are asked: a step is the optimizer's, which comes after.",
    ),
    Mistake(
        "gives a number on every rank",
        stages.gives_a_number_everywhere,
        "Only the last rank has a loss to return. The others return None, not a number that looks like one.",
    ),
)
