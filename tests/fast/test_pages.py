"""Who holds which page: none is lost, none is given twice, prompts give way when they must."""

import random

import torch

from tacit.fast.decode.pages import PAGE, Pages, Prompts, copy_pages, pages_for


def test_pages_come_back_when_their_last_user_lets_go() -> None:
    pages = Pages(4)
    mine = pages.take(3)
    pages.share(mine[:2])
    assert pages.free == 1 and len(set(mine)) == 3
    pages.release(mine)
    assert pages.free == 2
    pages.release(mine[:2])
    assert pages.free == 4


def test_pages_are_never_given_twice() -> None:
    dice = random.Random(0)
    pages, held = Pages(50), [[] for _ in range(8)]
    for _ in range(2000):
        who = dice.randrange(8)
        pages.release(held[who])
        held[who] = []
        if (count := dice.randrange(8)) <= pages.free:
            held[who] = pages.take(count)
        every = [page for some in held for page in some]
        assert len(every) == len(set(every)) and len(every) + pages.free == 50


def test_a_prompt_shares_its_full_pages_and_lends_its_last() -> None:
    prompts = Prompts(Pages(8))
    ids = tuple(range(2 * PAGE + 3))
    prompt = prompts.add((ids, ()))
    assert len(prompt.pages) == pages_for(len(ids)) == 3
    assert prompt.whole_pages == prompt.pages[:2] and prompt.tail_page == prompt.pages[2]
    even = prompts.add((ids[: 2 * PAGE], ()))
    assert even.whole_pages == even.pages and even.tail_page is None


def test_old_prompts_give_way_but_not_those_in_use() -> None:
    pages = Pages(4)
    prompts = Prompts(pages)
    old, used, new = (prompts.add(((n,) * PAGE, ())) for n in range(3))
    assert prompts.find(((0,) * PAGE, ())) is old, "asked for lately"
    assert not prompts.make_room(4, {id(old), id(used)})
    assert prompts.find(((2,) * PAGE, ())) is None and pages.free == 2
    assert prompts.find(((0,) * PAGE, ())) is old and prompts.find(((1,) * PAGE, ())) is used
    prompts.clear()
    assert pages.free == 4 and new.pages


def test_a_page_a_row_still_reads_outlives_its_prompt() -> None:
    pages = Pages(3)
    prompts = Prompts(pages)
    prompt = prompts.add(((1,) * PAGE, ()))
    pages.share(prompt.whole_pages)
    prompts.clear()
    assert pages.free == 2
    pages.release(prompt.whole_pages)
    assert pages.free == 3


def test_copied_pages_hold_what_their_source_holds() -> None:
    cache = torch.randn(2, 3, 4 * PAGE, 2, 8)
    before = cache.clone()
    copy_pages(cache, [(0, 2), (1, 3)])
    halves = cache.view(2, 3, 2, 2 * PAGE, 2, 8)
    assert torch.equal(halves[:, :, 0], halves[:, :, 1])
    assert torch.equal(cache[:, :, : 2 * PAGE], before[:, :, : 2 * PAGE])


def test_prompts_that_begin_alike_share_the_pages_that_are_full() -> None:
    pages = Pages(20)
    prompts = Prompts(pages)
    first = prompts.add((tuple(range(2 * PAGE + 3)), ()))
    longer = (tuple(range(5 * PAGE)), ())
    assert prompts.begun(longer) == first.pages[:2]
    second = prompts.add(longer, prompts.begun(longer))
    assert second.pages[:2] == first.pages[:2] and second.known == 2 * PAGE
    assert pages.free == 20 - 3 - 3
    same = (tuple(range(5 * PAGE)), (1, 2))
    assert prompts.begun(same) == second.pages[:4], "its last token is computed"
    assert prompts.begun(((*range(1, PAGE), *range(2 * PAGE)), ())) == []
    assert prompts.begun((tuple(range(PAGE, 3 * PAGE)), ())) == [], "not those of the middle"


def test_a_page_is_found_as_long_as_somebody_holds_it_and_its_weights_are_those_of_now() -> None:
    pages = Pages(8)
    prompts = Prompts(pages)
    ids = tuple(range(2 * PAGE + 1))
    prompt = prompts.add((ids, ()))
    pages.share(prompt.whole_pages)
    assert not prompts.make_room(8, set()) and prompts.begun((ids, ())) == prompt.pages[:2]
    pages.release(prompt.whole_pages)
    assert pages.free == 8 and prompts.begun((ids, ())) == []
    again = prompts.add((ids, ()))
    pages.share(again.whole_pages)
    prompts.clear()
    assert prompts.begun((ids, ())) == [], "a row still reads them, but the weights have changed"
    other = prompts.add((ids, ()))
    pages.release(again.whole_pages)
    assert prompts.begun((ids, ())) == other.pages[:2]


def test_whoever_comes_and_goes_a_page_holds_what_it_is_taken_for() -> None:
    dice = random.Random(0)
    pages = Pages(60)
    prompts = Prompts(pages)
    held: dict[int, tuple[int, ...]] = {}
    longest = 0
    for _ in range(3000):
        ids = tuple(n for _ in range(6) for n in [dice.randrange(2)] * PAGE)
        ids = ids[: dice.randrange(1, 90)]
        begun = prompts.begun((ids, ()))
        longest = max(longest, len(begun))
        assert [held[page] for page in begun] == [ids[: PAGE * (n + 1)] for n in range(len(begun))]
        if pages.free >= pages_for(len(ids)) and not prompts.find((ids, ())):
            prompt = prompts.add((ids, ()), begun)
            for number, page in enumerate(prompt.whole_pages):
                held[page] = ids[: PAGE * (number + 1)]
        prompts.trim(dice.randrange(5, 30))
    assert longest == 5
    prompts.clear()
    assert pages.free == 60
