//! What makes meanings: the model in the program, an endpoint, or nothing.

use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::time::Duration;

use mgp_embedding::{DIMENSION, Embedder, NAME};
use mgp_engine::index::Vector;
use mgp_transports::http::client::Client;
use tokio::runtime::Handle;

use super::provider::{Provider, Unanswered};

/// How long the model in the program is kept loaded for nothing. Loading takes a tenth of a second, and
/// a machine has other uses for 130 MiB.
const IDLE: Duration = Duration::from_secs(600);

/// Where meanings come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Embedding {
    /// Nowhere: tools are found by words alone.
    Off,
    /// From the model in the program.
    #[default]
    Builtin,
    /// From an endpoint.
    Provider(Provider),
}

impl Embedding {
    /// How many numbers its vectors have, where that is known.
    pub(super) fn dimension(&self) -> Option<usize> {
        match self {
            Self::Builtin => Some(DIMENSION),
            Self::Off | Self::Provider(_) => None,
        }
    }

    /// What its vectors are called where they are kept.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Off => String::new(),
            Self::Builtin => NAME.to_owned(),
            Self::Provider(provider) => format!("{} {}", provider.url, provider.model),
        }
    }
}

/// A model at work.
pub(super) enum Model {
    /// In the program, loaded when the first text comes: it takes 130 MiB, and not everybody looks
    /// for tools.
    Builtin(Option<Arc<Embedder>>, Shared),
    /// Elsewhere.
    Provider(Box<Endpoint>),
}

/// The model in the program, when somebody has it loaded: it is in memory once.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Weak<Embedder>>>);

impl Shared {
    /// An embedder whose threads have the priority of this one.
    fn load(&self) -> Result<Arc<Embedder>, Failed> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = match loaded.upgrade() {
            Some(other) => other.beside(threads()),
            None => Embedder::load(threads())?,
        };
        let mine = Arc::new(mine);
        *loaded = Arc::downgrade(&mine);
        Ok(mine)
    }
}

/// An endpoint, and what it takes to ask it from a thread of our own.
pub(super) struct Endpoint {
    provider: Provider,
    client: Client,
    runtime: Handle,
}

impl Model {
    /// `None` when there is none. Called on a thread of the runtime.
    pub(super) fn of(embedding: &Embedding, shared: &Shared) -> Option<Self> {
        match embedding {
            Embedding::Off => None,
            Embedding::Builtin => Some(Self::Builtin(None, shared.clone())),
            Embedding::Provider(provider) => {
                let endpoint = Endpoint {
                    provider: provider.clone(),
                    client: Provider::client(),
                    runtime: Handle::current(),
                };
                Some(Self::Provider(Box::new(endpoint)))
            }
        }
    }

    /// How long it may have nothing to do before it is let go, to be loaded again when the next text
    /// comes; `None` when there is nothing to let go.
    pub(super) fn idle(&self) -> Option<Duration> {
        matches!(self, Self::Builtin(Some(_), _)).then_some(IDLE)
    }

    /// Lets go of what costs memory.
    pub(super) fn rest(&mut self) {
        if let Self::Builtin(loaded, _) = self {
            *loaded = None;
        }
    }

    /// Texts that go through it together when nobody waits for them. The one in the program takes one
    /// at a time, so that what is more urgent does not wait long.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Builtin(..) => 1,
            Self::Provider(endpoint) => endpoint.provider.batch,
        }
    }

    /// The vectors of texts, in their order; none for a text that has no direction. Blocks.
    pub(super) fn embed(&mut self, texts: &[&str]) -> Result<Vec<Option<Vector>>, Failed> {
        match self {
            Self::Builtin(loaded, shared) => {
                let model = match loaded {
                    Some(model) => model,
                    None => loaded.insert(shared.load()?),
                };
                let vectors = model.embed_all(texts)?;
                Ok(vectors.iter().map(|vector| Vector::of(vector)).collect())
            }
            Self::Provider(endpoint) => Ok(endpoint.ask(texts)?),
        }
    }
}

impl Endpoint {
    /// Asks on a thread of the runtime, which may end meanwhile.
    fn ask(&self, texts: &[&str]) -> Result<Vec<Option<Vector>>, Unanswered> {
        let (provider, client) = (self.provider.clone(), self.client.clone());
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let (done, answer) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let _ = done.send(provider.embed(&client, &texts).await);
        });
        let ending = |_| Unanswered::Later("the kernel ends".into());
        answer.recv().map_err(ending)?
    }
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// The program is damaged; it will not get better.
    #[error(transparent)]
    Builtin(#[from] mgp_embedding::Failed),
    /// The endpoint's fault.
    #[error(transparent)]
    Provider(#[from] Unanswered),
}

/// Half of the cores: the other half carries calls.
fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}
