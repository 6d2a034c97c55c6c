//! The source of embeddings: the built-in model, an endpoint, or none.
//!
//! The built-in model runs in a separate process, because it takes more memory than the rest of the kernel. The process
//! ends when it is idle.

mod frames;
mod owner;
mod process;
mod serve;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use mgp_embedding::{DIMENSION, NAME};
use mgp_engine::tools::index::Vector;
use mgp_runtime::task;
use mgp_transports::http::client::Client;
use mgp_transports::http::proxy::Outbound;
use tokio::runtime::Handle;

use super::provider::{Provider, ProviderError};
use frames::EmbeddingLane;
pub(crate) use owner::ModelLocation;
use owner::{Builtin, ModelOwner};
pub use process::Program;
pub use serve::serve;

/// Where embeddings come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Embedding {
    /// No source: tools are found by words alone.
    Off,
    /// From the built-in model.
    #[default]
    Builtin,
    /// From an endpoint.
    Provider(Provider),
}

impl Embedding {
    /// The dimension of the vectors, if it is known.
    pub(super) fn dimension(&self) -> Option<usize> {
        match self {
            Self::Builtin => Some(DIMENSION),
            Self::Off | Self::Provider(_) => None,
        }
    }

    /// The model's name for other nodes; `None` if its vectors cannot be shared.
    pub(super) fn id(&self) -> Option<String> {
        let id = match self {
            Self::Off => return None,
            Self::Builtin => NAME,
            Self::Provider(provider) => &provider.model,
        };
        let is_plain = id.len() <= MODEL_MAX && id.bytes().all(|byte| byte.is_ascii_graphic());
        (is_plain && !id.is_empty()).then(|| id.to_owned())
    }

    /// The name under which the vectors are stored.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Off => String::new(),
            Self::Builtin => NAME.to_owned(),
            Self::Provider(provider) => format!("{} {}", provider.url, provider.model),
        }
    }
}

/// Longest id of a model that other nodes accept, in bytes.
const MODEL_MAX: usize = 128;

/// The source of embeddings, and the settings of the built-in model.
#[derive(Clone, Debug)]
pub struct EmbeddingOptions {
    /// The source.
    pub embedding: Embedding,
    /// The process of the built-in model.
    pub program: Program,
    /// How long the model may be idle before its process ends.
    pub idle: Duration,
    /// The settings of outbound connections to an endpoint.
    pub outbound: Outbound,
}

/// Makes the models of both threads.
#[derive(Debug)]
pub(super) struct Models {
    embedding: Embedding,
    owner: Arc<ModelOwner>,
    idle: Duration,
    outbound: Outbound,
}

/// The model of one thread.
pub(super) enum Model {
    /// The built-in model, whose process starts with the first text.
    Builtin(Builtin, Duration),
    /// An endpoint.
    Provider(Box<Endpoint>),
}

impl Models {
    pub(super) fn new(options: EmbeddingOptions) -> Self {
        Self {
            embedding: options.embedding,
            owner: Arc::new(ModelOwner::new(options.program)),
            idle: options.idle,
            outbound: options.outbound,
        }
    }

    /// See [`Embedding::id`].
    pub(super) fn id(&self) -> Option<String> {
        self.embedding.id()
    }

    /// The name under which vectors are stored.
    pub(super) fn name(&self) -> String {
        self.embedding.name()
    }

    /// The state of the built-in model's process.
    pub(super) fn running(&self) -> ModelLocation {
        self.owner.location()
    }

    /// The models for queries and for tools; `None` without a source. Must be called on a thread of the runtime.
    pub(super) fn thread_models(&self) -> Option<[Model; 2]> {
        match &self.embedding {
            Embedding::Off => None,
            Embedding::Builtin => Some(
                EmbeddingLane::ALL
                    .map(|lane| Model::Builtin(Builtin::new(self.owner.clone(), lane), self.idle)),
            ),
            Embedding::Provider(provider) => Some(EmbeddingLane::ALL.map(|_| {
                Model::Provider(Box::new(Endpoint {
                    provider: provider.clone(),
                    client: Client::new(self.outbound.clone()),
                    runtime: Handle::current(),
                }))
            })),
        }
    }
}

/// An endpoint with the runtime for its requests, for a thread outside the runtime.
pub(super) struct Endpoint {
    provider: Provider,
    client: Client,
    runtime: Handle,
}

impl Model {
    /// How long the model may be idle before it is released, to be restarted by the next text; `None` when there is
    /// nothing to release.
    pub(super) fn idle(&self) -> Option<Duration> {
        match self {
            Self::Builtin(builtin, idle) => builtin.has_process().then_some(*idle),
            Self::Provider(_) => None,
        }
    }

    /// Releases the memory of the model.
    pub(super) fn release(&mut self) {
        if let Self::Builtin(builtin, _) = self {
            builtin.release();
        }
    }

    /// The maximum number of texts that are embedded together when nobody waits for them. The built-in model takes one at
    /// a time, so that a query does not wait long.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Builtin(..) => 1,
            Self::Provider(endpoint) => endpoint.provider.batch,
        }
    }

    /// The vectors of texts, in their order; `None` for a text without direction. Blocks.
    pub(super) fn embed(&mut self, texts: &[&str]) -> Result<Vec<Option<Vector>>, EmbedError> {
        match self {
            Self::Builtin(builtin, _) => {
                let vectors = builtin.embed(texts)?;
                Ok(vectors
                    .iter()
                    .map(|vector| Vector::quantize(vector))
                    .collect())
            }
            Self::Provider(endpoint) => Ok(endpoint.request(texts)?),
        }
    }
}

impl Endpoint {
    /// Sends the request on a thread of the runtime, which may end meanwhile.
    fn request(&self, texts: &[&str]) -> Result<Vec<Option<Vector>>, ProviderError> {
        let (provider, client) = (self.provider.clone(), self.client.clone());
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let (done, answer) = mpsc::sync_channel(1);
        let _runtime = self.runtime.enter();
        task::spawn_detached("search.provider", async move {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let _ = done.send(provider.embed(&client, &texts).await);
        });
        let stopped = |_| ProviderError::Retryable("the kernel ends".into());
        answer.recv().map_err(stopped)?
    }
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub(super) enum EmbedError {
    /// The model cannot be run, now or later.
    #[error("{0}")]
    Unfit(String),
    /// Its process ended during these texts, and so did the next one.
    #[error("the process that runs the model has ended: {0}")]
    Died(String),
    /// It failed so often that it is in backoff.
    #[error(
        "the process that runs the model failed {0} times in a row; the next start is in backoff"
    )]
    BackingOff(u32),
    /// The endpoint failed.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}
