//! Nothing enters after the gate closes, and the drain is reported exactly once, when the last pass is dropped.
//!
//! One number holds the closed flag and the count of passes: entering is one compare-and-swap of both, so nothing can
//! happen between the check and the entry.

use std::sync::Arc;

use crate::shim::{AtomicUsize, Mutex, Ordering};

/// An admission gate: open until closed for good, then drained.
pub struct Gate {
    /// [`CLOSED`] or not, plus [`ONE`] for each pass.
    state: AtomicUsize,
    on_idle: Mutex<Option<OnIdle>>,
}

type OnIdle = Box<dyn FnOnce() + Send>;

const CLOSED: usize = 1;
const ONE: usize = 2;

/// Held while inside; dropping it leaves, from any thread.
#[must_use = "dropping the pass leaves at once"]
pub struct GatePass(Arc<Gate>);

impl Gate {
    /// An open gate without passes.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicUsize::new(0),
            on_idle: Mutex::new(None),
        })
    }

    /// Enters; `None` once closed. The caller bounds the number of passes; the count fits half of `usize::MAX`.
    pub fn enter(self: &Arc<Self>) -> Option<GatePass> {
        let step = |state| (state & CLOSED == 0).then_some(state + ONE);
        // A rejected entry synchronizes with the close.
        let (entered, refused) = (Ordering::Acquire, Ordering::Acquire);
        self.state.fetch_update(entered, refused, step).ok()?;
        Some(GatePass(Arc::clone(self)))
    }

    /// Closes the gate for good. `on_idle` runs once no pass is left: in this call, or where the last pass is dropped,
    /// so it must be short. It sees everything that was done inside.
    ///
    /// False, and `on_idle` is dropped without a run, if the gate was already closed.
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

    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Number of passes.
    #[cfg(test)]
    fn active_count(&self) -> usize {
        self.state.load(Ordering::Acquire) / ONE
    }

    fn exit(&self) {
        let before = self.state.fetch_sub(ONE, Ordering::AcqRel);
        if before == CLOSED + ONE {
            self.notify_idle();
        }
    }

    /// Runs only when a closed gate's count reaches zero, where it stays.
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
        let (sender, receiver) = channel();
        assert!(gate.close(move || sender.send(()).unwrap()));
        assert_eq!(receiver.try_recv(), Ok(()));
        assert!(gate.enter().is_none());
    }

    /// MGP-118: those inside finish, new ones are rejected.
    #[test]
    fn a_gate_in_use_reports_when_the_last_pass_is_dropped() {
        let gate = Gate::new();
        let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
        let (sender, receiver) = channel();
        assert!(gate.close(move || sender.send(()).unwrap()));
        assert!(gate.is_closed() && gate.enter().is_none());
        drop(first);
        assert_eq!(
            (gate.active_count(), receiver.try_recv()),
            (1, Err(TryRecvError::Empty))
        );
        std::thread::spawn(|| drop(second)).join().unwrap();
        assert_eq!((gate.active_count(), receiver.try_recv()), (0, Ok(())));
    }

    #[test]
    fn a_second_close_changes_nothing() {
        let gate = Gate::new();
        let inside = gate.enter().unwrap();
        let (sender, receiver) = channel();
        let again = sender.clone();
        assert!(gate.close(move || sender.send("first").unwrap()));
        assert!(!gate.close(move || again.send("second").unwrap()));
        drop(inside);
        assert!(!gate.close(|| panic!("closed twice")));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["first"]);
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize as Count;
    use loom::thread;

    /// MGP-118: two enter while the gate closes. One that got in is inside before the report, not after; a rejected one
    /// sees what was done before the close.
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
            let receiver = Arc::clone(&reports);
            gate.close(move || receiver.store(1, Ordering::SeqCst));
            assert!(gate.enter().is_none());
            a.join().unwrap();
            b.join().unwrap();
        });
    }

    /// MGP-126: two leave and two close; one report, from the first close, with nobody inside.
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
            let (other, receiver) = (Arc::clone(&gate), Arc::clone(&reports));
            let closer = thread::spawn(move || close(&other, &receiver));
            let mine = close(&gate, &reports);
            drop(second);
            leaver.join().unwrap();
            assert!(closer.join().unwrap() != mine, "one of them closed it");
            assert_eq!(reports.load(Ordering::SeqCst), 1);
        });
    }

    /// The report sees relaxed stores made inside.
    #[test]
    fn the_report_sees_what_was_done_inside() {
        loom::model(|| {
            let gate = Gate::new();
            let work: Arc<[Count; 2]> = Arc::new([Count::new(0), Count::new(0)]);
            let finish = |index: usize| {
                let (pass, work) = (gate.enter().unwrap(), Arc::clone(&work));
                thread::spawn(move || {
                    work[index].store(1, Ordering::Relaxed);
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
