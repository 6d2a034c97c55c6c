//! A waiting sender is woken by the next release, and sees each release once.
//!
//! Frames are in flight until the reader has taken them. Readers release them from any thread; the sender collects
//! released frames, and is woken only after it found none.

use crate::shim::Mutex;

/// Released frames of one sender.
pub struct SendWindow(Mutex<SendWindowState>);

#[derive(Default)]
struct SendWindowState {
    released: ReleasedFrames,
    is_waiting: bool,
}

/// Number and size of released frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleasedFrames {
    /// Number of frames.
    pub frames: usize,
    /// Sum of their sizes.
    pub bytes: usize,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self(Mutex::new(SendWindowState::default()))
    }
}

impl SendWindow {
    /// Releases a frame that was taken, or never will be. True if the caller must wake the waiting sender.
    #[must_use = "a sender that waits has to be woken"]
    pub fn release(&self, bytes: usize) -> bool {
        let mut state = self.0.lock();
        state.released.frames += 1;
        state.released.bytes += bytes;
        std::mem::take(&mut state.is_waiting)
    }

    /// Frames released since the last call.
    pub fn collect(&self) -> ReleasedFrames {
        std::mem::take(&mut self.0.lock().released)
    }

    /// The same; `None` if there are none, and the sender counts as waiting from now on.
    pub fn collect_or_wait(&self) -> Option<ReleasedFrames> {
        let mut state = self.0.lock();
        let released = std::mem::take(&mut state.released);
        state.is_waiting = released.frames == 0;
        (released.frames > 0).then_some(released)
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

    /// Two readers release; the sender sleeps whenever it finds nothing, and ends with all frames.
    #[test]
    fn a_waiting_sender_is_woken_by_the_next_release() {
        loom::model(|| {
            let window = Arc::new(SendWindow::default());
            let wakeup = Arc::new(loom::sync::Notify::new());
            let readers = [3, 4].map(|bytes| {
                let (window, wakeup) = (Arc::clone(&window), Arc::clone(&wakeup));
                thread::spawn(move || {
                    if window.release(bytes) {
                        wakeup.notify();
                    }
                })
            });
            let mut all = ReleasedFrames::default();
            while all.frames < 2 {
                match window.collect_or_wait() {
                    Some(released) => {
                        all.frames += released.frames;
                        all.bytes += released.bytes;
                    }
                    None => wakeup.wait(),
                }
            }
            assert_eq!(all.bytes, 7);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}
