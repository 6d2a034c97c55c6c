//! Nothing enters after it closes, and the drain is reported exactly once, when the last one inside
//! has left.
//!
//! Whether it is closed and how many are inside is one number: entering is one compare-and-swap of
//! both, so there is no moment between the check and the step.

use std::sync::Arc;

use crate::shim::{AtomicUsize, Mutex, Ordering};

/// An admission gate: open until it is closed for good, then empty after a while.
pub struct Gate {
    /// [`CLOSED`] or not, plus [`ONE`] for each one inside.
    state: AtomicUsize,
    on_idle: Mutex<Option<OnIdle>>,
}

type OnIdle = Box<dyn FnOnce() + Send>;

const CLOSED: usize = 1;
const ONE: usize = 2;

/// One that is inside; dropping it leaves. May travel to any thread.
#[must_use = "dropping the pass leaves at once"]
pub struct GatePass(Arc<Gate>);

impl Gate {
    /// An open gate with nobody inside.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicUsize::new(0),
            on_idle: Mutex::new(None),
        })
    }

    /// Enters; `None` once it is closed. How many may be inside is the business of the caller's own
    /// bound; the count has room for half of `usize::MAX`.
    pub fn enter(self: &Arc<Self>) -> Option<GatePass> {
        let step = |state| (state & CLOSED == 0).then_some(state + ONE);
        // Who is turned away sees what was done before the gate was closed.
        let (entered, refused) = (Ordering::Acquire, Ordering::Acquire);
        self.state.fetch_update(entered, refused, step).ok()?;
        Some(GatePass(Arc::clone(self)))
    }

    /// Closes it for good. `on_idle` runs once nobody is inside: here and now, or where the last
    /// pass is dropped, so it has to be short. It sees everything that was done inside.
    ///
    /// False, and `on_idle` is dropped without a run, when it was closed before.
    pub fn close(&self, on_idle: impl FnOnce() + Send + 'static) -> bool {
        let mut waiting = self.on_idle.lock();
        if self.is_closed() {
            return false;
        }
        *waiting = Some(Box::new(on_idle));
        let before = self.state.fetch_or(CLOSED, Ordering::AcqRel);
        drop(waiting);
        if before == 0 {
            self.notify_idle();
        }
        true
    }

    /// True once it was closed.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many are inside right now.
    #[must_use]
    pub fn active_count(&self) -> usize {
        self.state.load(Ordering::Acquire) / ONE
    }

    fn exit(&self) {
        let before = self.state.fetch_sub(ONE, Ordering::AcqRel);
        if before == CLOSED + ONE {
            self.notify_idle();
        }
    }

    /// Runs in one place only: where a closed gate's count reached nought, which it never leaves.
    fn notify_idle(&self) {
        let on_idle = self.on_idle.lock().take();
        on_idle.expect("a drain is reported once")();
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        self.0.exit();
    }
}

opaque_debug!(Gate);
opaque_debug!(GatePass);

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};

    #[test]
    fn an_empty_gate_reports_at_once() {
        let gate = Gate::new();
        drop(gate.enter().unwrap());
        let (tell, told) = channel();
        assert!(gate.close(move || tell.send(()).unwrap()));
        assert_eq!(told.try_recv(), Ok(()));
        assert!(gate.enter().is_none());
    }

    /// MGP-118: those inside finish, new ones are turned away.
    #[test]
    fn a_gate_in_use_reports_when_the_last_one_left() {
        let gate = Gate::new();
        let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
        let (tell, told) = channel();
        assert!(gate.close(move || tell.send(()).unwrap()));
        assert!(gate.is_closed() && gate.enter().is_none());
        drop(first);
        assert_eq!(
            (gate.active_count(), told.try_recv()),
            (1, Err(TryRecvError::Empty))
        );
        std::thread::spawn(|| drop(second)).join().unwrap();
        assert_eq!((gate.active_count(), told.try_recv()), (0, Ok(())));
    }

    #[test]
    fn a_second_close_changes_nothing() {
        let gate = Gate::new();
        let inside = gate.enter().unwrap();
        let (tell, told) = channel();
        let again = tell.clone();
        assert!(gate.close(move || tell.send("first").unwrap()));
        assert!(!gate.close(move || again.send("second").unwrap()));
        drop(inside);
        assert!(!gate.close(|| panic!("closed twice")));
        assert_eq!(told.iter().collect::<Vec<_>>(), ["first"]);
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize as Count;
    use loom::thread;

    /// MGP-118: two come while it is closed. Who got in is inside before the report, not after; who
    /// did not sees what was done before the close.
    #[test]
    fn nothing_enters_after_it_closes() {
        loom::model(|| {
            let gate = Gate::new();
            let (reason, reports) = (Arc::new(Count::new(0)), Arc::new(Count::new(0)));
            let come = || {
                let gate = Arc::clone(&gate);
                let (reason, reports) = (Arc::clone(&reason), Arc::clone(&reports));
                thread::spawn(move || match gate.enter() {
                    Some(_pass) => assert_eq!(reports.load(Ordering::SeqCst), 0),
                    None => assert_eq!(reason.load(Ordering::Relaxed), 1),
                })
            };
            let (a, b) = (come(), come());
            reason.store(1, Ordering::Relaxed);
            let told = Arc::clone(&reports);
            gate.close(move || told.store(1, Ordering::SeqCst));
            assert!(gate.enter().is_none());
            a.join().unwrap();
            b.join().unwrap();
        });
    }

    /// MGP-126: two leave and two close; one report, from the close that came first, with nobody
    /// inside.
    #[test]
    fn the_drain_is_reported_exactly_once() {
        loom::model(|| {
            let gate = Gate::new();
            let reports = Arc::new(Count::new(0));
            let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
            let close = |gate: &Arc<Gate>, reports: &Arc<Count>| {
                let (seen, reports) = (Arc::clone(gate), Arc::clone(reports));
                gate.close(move || {
                    assert_eq!(seen.active_count(), 0);
                    reports.fetch_add(1, Ordering::SeqCst);
                })
            };
            let leaver = thread::spawn(move || drop(first));
            let (other, told) = (Arc::clone(&gate), Arc::clone(&reports));
            let closer = thread::spawn(move || close(&other, &told));
            let mine = close(&gate, &reports);
            drop(second);
            leaver.join().unwrap();
            assert!(closer.join().unwrap() != mine, "one of them closed it");
            assert_eq!(reports.load(Ordering::SeqCst), 1);
        });
    }

    /// What was done inside, however loosely, is seen by the report.
    #[test]
    fn the_report_sees_what_was_done_inside() {
        loom::model(|| {
            let gate = Gate::new();
            let work: Arc<[Count; 2]> = Arc::new([Count::new(0), Count::new(0)]);
            let finish = |at: usize| {
                let (pass, work) = (gate.enter().unwrap(), Arc::clone(&work));
                thread::spawn(move || {
                    work[at].store(1, Ordering::Relaxed);
                    drop(pass);
                })
            };
            let (a, b) = (finish(0), finish(1));
            let done = Arc::clone(&work);
            gate.close(move || {
                for work in done.iter() {
                    assert_eq!(work.load(Ordering::Relaxed), 1);
                }
            });
            a.join().unwrap();
            b.join().unwrap();
        });
    }
}
