"""When a group counts as dead, look after look; and above all when it does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkop.resources.liveness import STANDSTILL, Counters, Life, Seen, Verdict, judge
from sparkop.serving.canary import EndpointState, Serving

REST = Counters(generated=7, prompt=9, kv=0.2, running=2, waiting=0)


def looks(*seen: tuple[Serving | None, Counters | None], served: bool = True, every: float = 30.0) -> Life:
    """One look each ``every`` seconds: the canary's answer, if one came, and the counters."""
    life = Life()
    for number, (answer, counters) in enumerate(seen):
        state = None if answer is None else EndpointState(answer, str(answer))
        life = judge(life, Seen(1000 + every * number, 3, served, counters, state))
    return life


def verdict(*seen: tuple[Serving | None, Counters | None], served: bool = True) -> Verdict:
    return looks(*seen, served=served).verdict


READY, NO_TOKEN = (Serving.READY, REST), (Serving.WEDGED, REST)


def test_tokens_are_the_only_proof() -> None:
    assert verdict((None, REST)) is Verdict.UNKNOWN
    assert verdict((None, REST), served=False) is Verdict.STARTING
    assert verdict((None, REST), (None, REST), (None, REST), served=False) is Verdict.STARTING
    assert verdict(READY) is Verdict.SERVING
    assert verdict(READY, (None, REST)) is Verdict.SERVING


def test_one_bad_answer_is_never_believed() -> None:
    for bad in (Serving.WEDGED, Serving.DEGENERATE, Serving.BROKEN, Serving.SILENT, Serving.LOADING):
        told = Verdict.SLOW if bad is Serving.WEDGED else Verdict.SUSPECTED
        assert verdict(READY, (bad, REST)) is told
        assert verdict((bad, REST), READY, (bad, REST)) is told


def test_one_answer_of_garbage_is_not_called_slow() -> None:
    """``slow: only '!', 16 times``."""
    life = looks(READY, (Serving.DEGENERATE, REST))
    assert (life.verdict, life.detail) == (
        Verdict.SUSPECTED,
        "one answer was degenerate: degenerate",
    )


def test_two_probes_without_a_token_and_frozen_counters_are_a_wedge() -> None:
    life = looks(READY, NO_TOKEN, NO_TOKEN, (None, REST))
    assert life.verdict is Verdict.WEDGED
    assert life.detail == "wedged, nor before, and its counters stand still"


def test_the_own_aborted_requests_do_not_hide_a_wedge() -> None:
    """They free their part of the cache (a gauge falls), and arrive as prompts before the first answer."""
    arrived = Counters(generated=7, prompt=30, kv=0.3, running=3)
    given_up = Counters(generated=7, prompt=30, kv=0.1, running=2)
    assert verdict(READY, (None, arrived), (Serving.WEDGED, given_up), (Serving.WEDGED, given_up)) is (
        Verdict.WEDGED
    )


def test_progress_is_no_wedge() -> None:
    prefill = [(Serving.WEDGED, Counters(generated=7, prompt=9, kv=0.2 + n / 50)) for n in range(20)]
    assert verdict(READY, *prefill) is Verdict.SLOW
    others = [(Serving.WEDGED, Counters(generated=7 + n, prompt=9, kv=0.2)) for n in range(20)]
    assert verdict(READY, *others) in (Verdict.SLOW, Verdict.SERVING)


def test_what_has_no_counters_can_be_slow_for_ever() -> None:
    blind = Counters()
    assert verdict(READY, *[(Serving.WEDGED, blind)] * 20) is Verdict.SLOW


def test_deaf_and_dumb_is_silent_and_says_since_when() -> None:
    life = looks(READY, *[(Serving.WEDGED, None)] * 11)
    assert life.verdict is Verdict.SILENT
    assert life.state(1330.0).lasted == 300.0


def test_garbage_twice_is_degenerate_even_while_counters_run() -> None:
    busy = [(Serving.DEGENERATE, Counters(generated=7 + 100 * n)) for n in range(2)]
    assert verdict(READY, *busy) is Verdict.DEGENERATE


def test_503_is_a_start_before_and_a_death_after_it_has_served() -> None:
    loading = [(Serving.LOADING, None)] * 5
    assert verdict(*loading, served=False) is Verdict.STARTING
    assert verdict(*loading, served=True) is Verdict.BROKEN


def test_what_was_seen_of_a_start_by_another_says_nothing_of_the_group_that_serves() -> None:
    """As soon as its apply had written ``ready``, 503 before it was believed as its death, and six minutes in
    which nothing listened as a silent API: watch restarted a group that served."""
    for before in (Serving.LOADING, Serving.SILENT, Serving.WEDGED, Serving.BROKEN):
        life = Life()
        for number in range(40):
            state = EndpointState(before, "while it loads")
            life = judge(life, Seen(1000 + 10.0 * number, 3, False, None, state))
        for at, state in ((1400.0, EndpointState(before, "asked before")), (1401.0, None), (1410.0, None)):
            life = judge(life, Seen(at, 3, True, REST, state))
            assert (life.verdict, life.bad, life.unheard_since) == (Verdict.UNKNOWN, 0, None)
        life = judge(life, Seen(1420.0, 3, True, REST, EndpointState(Serving.READY)))
        assert life.verdict is Verdict.SERVING
        for at in (1430.0, 1440.0):
            life = judge(life, Seen(at, 3, True, None, EndpointState(Serving.LOADING)))
        assert life.verdict is Verdict.BROKEN, "what it does afterwards counts"


def test_a_history_that_is_not_read_for_a_look_makes_no_bad_answer_undone() -> None:
    life = looks((Serving.BROKEN, REST))
    life = judge(life, Seen(1030.0, 3, False, REST, None))
    life = judge(life, Seen(1060.0, 3, True, REST, EndpointState(Serving.BROKEN)))
    assert life.verdict is Verdict.BROKEN


def test_nothing_is_silent_whose_counters_answer() -> None:
    """Five minutes begin when the counters are last heard, and end as soon as they are heard again."""
    refused = (Serving.SILENT, None)
    assert verdict(READY, *[refused] * 12) is Verdict.SILENT
    for heard in (REST, Counters()):
        life = looks(READY, *[refused] * 12, (None, heard))
        assert life.verdict is Verdict.SUSPECTED
        life = judge(judge(life, Seen(2000.0, 3, True, None, None)), Seen(2010.0, 3, True, None, None))
        assert (life.verdict, life.unheard_since) == (Verdict.SUSPECTED, 2000.0)
        life = judge(life, Seen(2020.0, 3, True, None, EndpointState(Serving.SILENT)))
        assert life.verdict is Verdict.SILENT
        assert life.state(2020.0).lasted == 20.0
    moving = [(Serving.SILENT, Counters(generated=7.0 + number)) for number in range(20)]
    assert verdict(READY, *moving) is Verdict.SLOW


def test_a_new_group_begins_anew() -> None:
    life = looks(READY, NO_TOKEN, NO_TOKEN)
    assert judge(life, Seen(2000, 4, False, REST, None)).verdict is Verdict.STARTING


def test_service_without_a_break_is_measured() -> None:
    assert looks(READY, READY, (None, REST)).served_since == 1000
    assert looks(READY, (Serving.DEGENERATE, REST), (Serving.DEGENERATE, REST)).served_since is None
    assert looks((None, REST)).served_since is None


counters = st.builds(
    Counters, generated=st.floats(0, 9), prompt=st.floats(0, 9), kv=st.floats(0, 1), running=st.just(1.0)
)
answers = st.sampled_from([None, *Serving])


@given(st.lists(st.tuples(answers, st.none() | counters, st.floats(0.1, 100)), max_size=30))
def test_a_wedge_is_never_seen_in_the_shadow_of_progress(
    looks: list[tuple[Serving | None, Counters | None, float]],
) -> None:
    """Whatever order: a wedge needs counters that stood still, and nothing bad is ever believed at once."""
    life, now, bad = Life(), 1000.0, 0
    for answer, found, passed in looks:
        now += passed
        state = None if answer is None else EndpointState(answer)
        before, life = life, judge(life, Seen(now, 1, True, found, state))
        if life.verdict is Verdict.WEDGED:
            assert now - life.moved_at >= STANDSTILL
            assert life.bad >= 2
        if answer is not None:
            bad = bad + 1 if answer is before.last_bad else 1
        if life.verdict in (Verdict.DEGENERATE, Verdict.BROKEN) and life.verdict is not before.verdict:
            assert bad >= 2
