//! A sender that waits is told of the next return, and of each return once.
//!
//! What a stream has sent is on its way until its reader has taken it. Readers give it back from any
//! thread; the sender counts what came back, and is woken only when it found nothing.

use crate::shim::Mutex;

/// What came back to one sender.
pub struct SendWindow(Mutex<SendWindowState>);

#[derive(Default)]
struct SendWindowState {
    released: ReleasedFrames,
    is_waiting: bool,
}

/// Frames that came back, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleasedFrames {
    /// How many.
    pub frames: usize,
    /// The sum of their bytes.
    pub bytes: usize,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self(Mutex::new(SendWindowState::default()))
    }
}

impl SendWindow {
    /// A reader has taken one frame, or never will. True when the sender waits: it must be woken then,
    /// and nobody else does it.
    #[must_use = "a sender that waits has to be woken"]
    pub fn release(&self, bytes: usize) -> bool {
        let mut state = self.0.lock();
        state.released.frames += 1;
        state.released.bytes += bytes;
        std::mem::take(&mut state.is_waiting)
    }

    /// What came back since it was asked last.
    pub fn collect(&self) -> ReleasedFrames {
        std::mem::take(&mut self.0.lock().released)
    }

    /// The same; `None` when nothing did: from now on the sender waits.
    pub fn collect_or_wait(&self) -> Option<ReleasedFrames> {
        let mut state = self.0.lock();
        let back = std::mem::take(&mut state.released);
        state.is_waiting = back.frames == 0;
        (back.frames > 0).then_some(back)
    }
}

opaque_debug!(SendWindow);

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_sender_that_found_nothing_is_woken_and_once() {
        let window = SendWindow::default();
        assert!(!window.release(5));
        let both = |frames, bytes| ReleasedFrames { frames, bytes };
        assert_eq!(window.collect_or_wait(), Some(both(1, 5)));
        assert_eq!(window.collect_or_wait(), None);
        assert!(window.release(2));
        assert!(!window.release(3));
        assert_eq!(window.collect(), both(2, 5));
        assert_eq!(window.collect(), both(0, 0));
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// Two readers give back; the sender sleeps whenever it finds nothing, and ends with all of it.
    #[test]
    fn a_sender_that_waits_is_told_of_the_next_return() {
        loom::model(|| {
            let window = Arc::new(SendWindow::default());
            let bell = Arc::new(loom::sync::Notify::new());
            let readers = [3, 4].map(|bytes| {
                let (window, bell) = (Arc::clone(&window), Arc::clone(&bell));
                thread::spawn(move || {
                    if window.release(bytes) {
                        bell.notify();
                    }
                })
            });
            let mut all = ReleasedFrames::default();
            while all.frames < 2 {
                match window.collect_or_wait() {
                    Some(back) => {
                        all.frames += back.frames;
                        all.bytes += back.bytes;
                    }
                    None => bell.wait(),
                }
            }
            assert_eq!(all.bytes, 7);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}
