//! What makes meanings: the model in the program, an endpoint, or nothing.
//!
//! The model is run by a process of its own, which ends when it has nothing to do: it takes more memory
//! than all the rest of the kernel.

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
use tokio::runtime::Handle;

use super::provider::{NoVectors, Provider};
use frames::EmbeddingLane;
pub use owner::ModelLocation;
use owner::{Builtin, ModelOwner};
pub use process::Program;
pub use serve::serve;

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

/// Where meanings come from, and what it takes to run the model that is in the program.
#[derive(Clone, Debug)]
pub struct Meanings {
    /// Where they come from.
    pub embedding: Embedding,
    /// Runs the model.
    pub program: Program,
    /// How long the model may have nothing to do before its process ends.
    pub idle: Duration,
}

/// What the models of all threads are made of.
#[derive(Debug)]
pub(super) struct Models {
    embedding: Embedding,
    owner: Arc<ModelOwner>,
    idle: Duration,
}

/// A model at work for one thread.
pub(super) enum Model {
    /// In the program, run by a process that is started when the first text comes.
    Builtin(Builtin, Duration),
    /// Elsewhere.
    Provider(Box<Endpoint>),
}

impl Models {
    pub(super) fn new(meanings: Meanings) -> Self {
        Self {
            embedding: meanings.embedding,
            owner: Arc::new(ModelOwner::new(meanings.program)),
            idle: meanings.idle,
        }
    }

    /// What vectors are called where they are kept.
    pub(super) fn name(&self) -> String {
        self.embedding.name()
    }

    /// Where the model in the program runs.
    pub(super) fn running(&self) -> ModelLocation {
        self.owner.running()
    }

    /// The model for requests, and the one for tools; `None` when there is none. Called on a thread of
    /// the runtime.
    pub(super) fn both(&self) -> Option<[Model; 2]> {
        match &self.embedding {
            Embedding::Off => None,
            Embedding::Builtin => Some(
                EmbeddingLane::ALL
                    .map(|lane| Model::Builtin(Builtin::new(self.owner.clone(), lane), self.idle)),
            ),
            Embedding::Provider(provider) => Some(EmbeddingLane::ALL.map(|_| {
                Model::Provider(Box::new(Endpoint {
                    provider: provider.clone(),
                    client: Provider::client(),
                    runtime: Handle::current(),
                }))
            })),
        }
    }
}

/// An endpoint, and what it takes to ask it from a thread of our own.
pub(super) struct Endpoint {
    provider: Provider,
    client: Client,
    runtime: Handle,
}

impl Model {
    /// How long it may have nothing to do before it is let go, to be started again when the next text
    /// comes; `None` when there is nothing to let go.
    pub(super) fn idle(&self) -> Option<Duration> {
        match self {
            Self::Builtin(builtin, idle) => builtin.holds().then_some(*idle),
            Self::Provider(_) => None,
        }
    }

    /// Lets go of what costs memory.
    pub(super) fn rest(&mut self) {
        if let Self::Builtin(builtin, _) = self {
            builtin.rest();
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
            Self::Builtin(builtin, _) => {
                let vectors = builtin.embed(texts)?;
                Ok(vectors.iter().map(|vector| Vector::of(vector)).collect())
            }
            Self::Provider(endpoint) => Ok(endpoint.ask(texts)?),
        }
    }
}

impl Endpoint {
    /// Asks on a thread of the runtime, which may end meanwhile.
    fn ask(&self, texts: &[&str]) -> Result<Vec<Option<Vector>>, NoVectors> {
        let (provider, client) = (self.provider.clone(), self.client.clone());
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let (done, answer) = mpsc::sync_channel(1);
        let _here = self.runtime.enter();
        task::detached("search.provider", async move {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let _ = done.send(provider.embed(&client, &texts).await);
        });
        let ending = |_| NoVectors::Later("the kernel ends".into());
        answer.recv().map_err(ending)?
    }
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    /// The model cannot be run; it will not get better.
    #[error("{0}")]
    Unfit(String),
    /// Its process ended while it worked on these texts; so did the next one.
    #[error("the process that runs the model was lost: {0}")]
    Died(String),
    /// It failed so often that none is started now.
    #[error(
        "the process that runs the model failed {0} times in a row, and is not started again yet"
    )]
    Resting(u32),
    /// The endpoint's fault.
    #[error(transparent)]
    Provider(#[from] NoVectors),
}
