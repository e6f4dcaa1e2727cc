import threading

from tacit.engine.worker import Worker


def test_steps_run_until_no_work_is_left_and_the_thread_ends_with_the_last_member() -> None:
    worker, left, done = Worker(), [3], threading.Event()

    def step() -> bool:
        left[0] -= 1
        if left[0] == 0:
            done.set()
        return left[0] > 0

    worker.add(step)
    worker.wake()
    assert done.wait(10)
    worker.remove(step)
    assert left == [0]
    assert "tacit-engine" not in {thread.name for thread in threading.enumerate()}


def test_a_pause_waits_for_the_step_under_way_and_holds_the_next() -> None:
    worker, begun, go_on, steps = Worker(), threading.Event(), threading.Event(), []

    def step() -> bool:
        begun.set()
        go_on.wait(10)
        steps.append(1)
        return True

    worker.add(step)
    worker.wake()
    assert begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    worker.hold()
    worker.wait_idle()
    held = len(steps)
    assert held >= 1
    threading.Event().wait(0.05)
    assert len(steps) == held
    worker.release()
    assert worker.epoch == 1
    worker.remove(step)
    assert len(steps) >= held


def test_leaving_one_of_two_keeps_the_other_at_work() -> None:
    worker, ran = Worker(), threading.Event()

    def idle() -> bool:
        return False

    def step() -> bool:
        ran.set()
        return False

    worker.add(idle)
    worker.add(step)
    worker.wake()
    assert ran.wait(10)
    worker.remove(idle)
    ran.clear()
    worker.wake()
    assert ran.wait(10)
    worker.remove(step)


def test_leaving_before_any_work_is_no_wait() -> None:
    worker = Worker()

    def step() -> bool:
        return False

    worker.add(step)
    worker.remove(step)
