//! Holds back an inference's output until the servers after it have answered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::HookOrigin;

/// Stored verdicts: the last chunks of an inference arrive within a moment of its verdict.
const VERDICTS_MAX: usize = 1024;
/// Bytes of their texts. The oldest are evicted at either bound; output that still waits for them is withheld.
const VERDICT_BYTES_MAX: usize = 16 << 20;

/// An inference of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GateKey {
    owner: String,
    inference: String,
}

impl GateKey {
    /// The key of an inference id.
    #[must_use]
    pub(crate) fn new(origin: &HookOrigin, inference: &str) -> Self {
        let owner = match origin {
            HookOrigin::Agent(agent) => format!("agent {:?}", agent.connection),
            HookOrigin::Server { server, .. } => format!("server {server}"),
        };
        Self {
            owner,
            inference: inference.to_owned(),
        }
    }
}

/// Stores the verdict of each inference with hooks.
///
/// Whoever has output of an inference to send (a chunk, a result) while [`super::Hooks::should_wait_after`] holds asks
/// [`AfterGate::verdict`] first: it resolves when the chain has answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct AfterGate(Arc<Mutex<GateState>>);

#[derive(Debug, Default)]
struct GateState {
    inferences: HashMap<GateKey, watch::Sender<Option<AfterVerdict>>>,
    /// Oldest first.
    order: VecDeque<GateKey>,
    bytes: usize,
}

/// An inference whose chain is in flight. If it is aborted, its output is withheld.
pub(super) struct GatedInference<'a> {
    gate: &'a AfterGate,
    key: &'a GateKey,
}

impl AfterGate {
    /// Resolves with the final text of an inference once its chain has answered, whether it has started or not. After `wait`
    /// the output is withheld.
    pub(crate) async fn verdict(&self, key: &GateKey, wait: Duration) -> AfterVerdict {
        let mut verdict = self.lock().entry(key);
        let concluded = verdict.wait_for(Option::is_some);
        match tokio::time::timeout(wait, concluded).await {
            Ok(Ok(verdict)) => verdict
                .clone()
                .unwrap_or_else(|| withhold("it has no verdict")),
            Ok(Err(_)) => withhold("too many inferences are under way"),
            Err(_) => withhold(
                "the servers behind the inference were not asked, or did not answer, in time",
            ),
        }
    }

    pub(super) fn begin<'a>(&'a self, key: &'a GateKey) -> GatedInference<'a> {
        drop(self.lock().entry(key));
        GatedInference { gate: self, key }
    }

    pub(super) fn conclude(&self, key: &GateKey, verdict: AfterVerdict) {
        let mut state = self.lock();
        drop(state.entry(key));
        let bytes = verdict.bytes();
        if let Some(sender) = state.inferences.get(key) {
            let before = sender.send_replace(Some(verdict));
            state.bytes += bytes;
            state.bytes -= before.map_or(0, |before| before.bytes());
        }
        state.evict_oldest();
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GateState {
    fn entry(&mut self, key: &GateKey) -> watch::Receiver<Option<AfterVerdict>> {
        if let Some(known) = self.inferences.get(key) {
            return known.subscribe();
        }
        let (sender, receiver) = watch::channel(None);
        self.inferences.insert(key.clone(), sender);
        self.order.push_back(key.clone());
        self.evict_oldest();
        receiver
    }

    /// Evicts the oldest verdicts, but never the last one.
    fn evict_oldest(&mut self) {
        while self.order.len() > 1
            && (self.order.len() > VERDICTS_MAX || self.bytes > VERDICT_BYTES_MAX)
        {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            let evicted = self.inferences.remove(&oldest);
            let bytes =
                evicted.and_then(|evicted| evicted.borrow().as_ref().map(AfterVerdict::bytes));
            self.bytes -= bytes.unwrap_or(0);
        }
    }
}

impl Drop for GatedInference<'_> {
    fn drop(&mut self) {
        let open = |state: &GateState| {
            let sender = state.inferences.get(self.key);
            sender.is_some_and(|sender| sender.borrow().is_none())
        };
        let open = open(&self.gate.lock());
        if open {
            self.gate.conclude(self.key, withhold("the hook broke off"));
        }
    }
}

/// The decision about a model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterVerdict {
    /// Sent unchanged.
    Unchanged,
    /// Sent with this text instead.
    Modified(Arc<str>),
    /// Withheld; with the reason for the user.
    Withheld(Arc<str>),
}

impl AfterVerdict {
    fn bytes(&self) -> usize {
        match self {
            Self::Unchanged => 0,
            Self::Modified(text) | Self::Withheld(text) => text.len(),
        }
    }
}

fn withhold(why: &str) -> AfterVerdict {
    AfterVerdict::Withheld(format!("the answer is withheld: {why}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::ids::ServerId;

    fn key(inference: &str) -> GateKey {
        let origin = HookOrigin::Server {
            server: ServerId::new("s"),
            depth: 1,
        };
        GateKey::new(&origin, inference)
    }

    /// MCPL-093: waiters get the verdict when it arrives, and later requests at once.
    #[tokio::test]
    async fn a_waiter_gets_the_verdict() {
        let gate = AfterGate::default();
        let waiter = {
            let gate = gate.clone();
            tokio::spawn(async move { gate.verdict(&key("i"), Duration::from_secs(60)).await })
        };
        let key = key("i");
        let gated = gate.begin(&key);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        let modified = AfterVerdict::Modified("[REDACTED]".into());
        gate.conclude(&key, modified.clone());
        drop(gated);
        assert_eq!(waiter.await.unwrap(), modified);
        assert_eq!(gate.verdict(&key, Duration::ZERO).await, modified);
    }

    /// Output without a verdict is withheld: both when the chain never started, and when it was aborted.
    #[tokio::test]
    async fn without_a_verdict_output_is_withheld() {
        let gate = AfterGate::default();
        let late = gate.verdict(&key("never"), Duration::from_millis(1)).await;
        assert!(matches!(late, AfterVerdict::Withheld(_)));
        let broken = key("broken");
        drop(gate.begin(&broken));
        let verdict = gate.verdict(&broken, Duration::from_secs(60)).await;
        assert!(matches!(verdict, AfterVerdict::Withheld(_)));
    }

    #[tokio::test]
    async fn stored_verdicts_are_bounded() {
        let gate = AfterGate::default();
        for n in 0..3 * VERDICTS_MAX {
            gate.conclude(&key(&n.to_string()), AfterVerdict::Modified("x".into()));
        }
        assert_eq!(gate.lock().order.len(), VERDICTS_MAX);
        let text: Arc<str> = "x".repeat(VERDICT_BYTES_MAX / 4).into();
        for n in 0..9 {
            gate.conclude(&key(&n.to_string()), AfterVerdict::Modified(text.clone()));
        }
        let state = gate.lock();
        assert!(state.order.len() <= 4 && state.bytes <= VERDICT_BYTES_MAX);
        assert_eq!(state.inferences.len(), state.order.len());
    }
}
