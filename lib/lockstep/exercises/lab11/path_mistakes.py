"""The sentence that each fault of exercise 11.1 gets.

Floor 4, room `exercises`; the exercise is in `path.py`, the wrong functions in `path_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab11 import path_wrong as wrong
from lockstep.exercises.lab11.told import never_ends
from lockstep.exercises.symptoms import raises

MISTAKES = (
    Mistake(
        "stays on one rank",
        wrong.own_rank,
        "Your path never leaves its rank. A rank that stood still waited for somebody: a message leads over to another "
        "rank.",
    ),
    Mistake(
        "a message waits for its sender alone",
        wrong.by_the_sender,
        "From a message you go on with its sender. A message needs both: where the receiver was late, what the receiver "
        "did before is on the path.",
        symptom=wrong.goes_on_with(0),
    ),
    Mistake(
        "a message waits for its receiver alone",
        wrong.by_the_receiver,
        "From a message you go on with its receiver. What held the message up may as well have been its sender.",
        symptom=wrong.goes_on_with(1),
    ),
    Mistake(
        "from the end to the beginning",
        wrong.backwards_in_time,
        "The path is right, and stands the wrong way round. It was found backwards; return it in order of time.",
    ),
    Mistake(
        "waiting on the path",
        wrong.with_waiting,
        "There is waiting on your path. Waiting takes no part in what had to be done: it ends when something else ends, "
        "and that is what you look for.",
        symptom=wrong.has_waiting,
    ),
    Mistake(
        "what began last",
        wrong.started_last,
        "You step back to what *began* last. An event waits for the one that *ended* last: a short one that began late "
        "may have been over for long.",
    ),
    Mistake(
        "the longest before",
        wrong.longest_before,
        "You step back to the longest event. How long it took does not matter, if it was over long before: take the one "
        "that ended last.",
    ),
    Mistake(
        "from the longest event",
        wrong.from_the_longest,
        "Your path ends with the longest event. It has to end with the one that ends last: the run is over no sooner.",
    ),
    Mistake(
        "on any rank",
        wrong.on_any_rank,
        "You step back to whatever ended last, on any rank. Without a message two ranks know nothing of each other: ask "
        "on the ranks of the event alone.",
    ),
    Mistake(
        "counts overlap twice",
        wrong.counts_overlap_twice,
        "Events on your path overlap, so the same moments count twice. What an event waited for had *ended* when it "
        "began; beginning before it is not enough.",
    ),
    Mistake(
        "nothing that touches",
        wrong.nothing_that_touches,
        "You leave out what ended at the very moment. An event begins as soon as it can, so the one that it waited for "
        "ends exactly then: `<=`, not `<`.",
    ),
    Mistake(
        "without the last event",
        wrong.without_the_last,
        "The event that ends last is missing. It is a part of the path, as the first is.",
    ),
    Mistake(
        "without messages",
        wrong.without_messages,
        "There is no message on your path. While one travels, nobody computes what comes after it: it takes its time as "
        "any event.",
    ),
    Mistake(
        "the busiest rank",
        wrong.busiest_rank,
        "That is what the rank with most work did. Others may have kept it waiting, and the run may end elsewhere.",
    ),
    Mistake(
        "its length",
        wrong.its_length,
        "That is the length of the path. Return the events themselves, spans and messages, in a list.",
    ),
    Mistake(
        "its names",
        wrong.its_names,
        "Those are names. Return the spans and messages themselves, as they are in the trace.",
    ),
    Mistake(
        "everything on its ranks",
        wrong.all_on_its_ranks,
        "You return everything that happened on the ranks of the last event. The path is one chain: at each moment one event.",
    ),
    Mistake(
        "forward from the first event",
        wrong.from_the_first,
        "You start at the first event and go forward. From there nobody knows which way leads to the event that ends "
        "last. Begin with that one, and ask what it had to wait for.",
    ),
    Mistake(
        "all events",
        wrong.all_events,
        "You return every event of the run. Most of them kept nobody waiting: begin with the one that ends last, and step "
        "back from each event to the one before it.",
    ),
    Mistake(
        "from what began last",
        wrong.began_last_of_all,
        "Your path ends with the event that *began* last. Another one may have begun sooner and still end later: the run is "
        "over when the last one ends.",
    ),
    Mistake(
        "one step back",
        wrong.one_step_back,
        "You go back a single step. What the event before had to wait for is on the path, too, and so on, until nothing had "
        "ended before.",
        symptom=wrong.on_every_case_alone,
    ),
    Mistake(
        "ended before the end",
        wrong.before_its_end,
        "You ask what had ended when the event *ended*; it has to have ended when the event *began*. Compared with its end, "
        "with `<=`, each event also comes before itself, and the loop never ends.",
        symptom=never_ends,
    ),
    Mistake(
        "ended first",
        wrong.ended_first,
        "You step back to what ended *first*. An event begins when the last of all that it waits for has ended.",
    ),
    Mistake(
        "never stops",
        wrong.with_no_end,
        "You look for the last of an empty list. When nothing had ended before an event, the path is complete: stop there.",
        symptom=raises("ValueError", "max()"),
    ),
    Mistake(
        "keeps the ranks of later events",
        wrong.ranks_pile_up,
        "You add each event's ranks to those that you had. When the path has gone over to another rank, the rank that it "
        "came from counts no more: ask on the ranks of the event itself.",
    ),
    Mistake(
        "the tuples around the events",
        wrong.in_tuples,
        "Those are your own tuples, with the events in them. Return the spans and messages alone.",
        symptom=wrong.has_wrapped,
    ),
    Mistake(
        "a generator",
        wrong.in_a_generator,
        "A function with `yield` gives its events one by one, to whom asks. Collect them in a list and return it.",
        symptom=wrong.gives_a_generator,
    ),
    Mistake(
        "from the last computation",
        wrong.from_the_last_span,
        "Your path ends with the last computation. A message may end later still: the last event of all is the end.",
    ),
    Mistake(
        "ended exactly then",
        wrong.ended_exactly_then,
        "You ask what ended at exactly the moment at which the event began. In a real run some time is lost between the two: "
        "take what ended last, at that moment *or before*.",
    ),
    Mistake(
        "messages on the sender's rank alone",
        wrong.on_the_senders_rank,
        "A message of yours has one rank, its sender's. It belongs to both: the receiver, too, waits for it.",
    ),
    Mistake(
        "messages on the receiver's rank alone",
        wrong.on_the_receivers_rank,
        "A message of yours has one rank, its receiver's. It belongs to both: it waits for its sender, too.",
    ),
)
