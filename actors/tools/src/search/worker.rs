//! The embedding threads: one for queries, for which callers wait, and one for tools.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::index::{EmbeddingText, Vector};
use mgp_protocol::ids::ServerId;

use super::SearchMsg;
use super::embedding_queue::{EmbeddingQueue, Job, PendingQuery};
use super::model::{EmbedError, Model, Models};
use super::provider::ProviderError;
use super::vector_file::VectorFile;
use mgp_runtime::Mailbox;
use mgp_runtime::time::monotonic_now;

/// How often new vectors of one server are published while more are computed: each publication costs time in
/// proportion to the server's tools.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// The first and the longest pause for texts of tools after an endpoint failed.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often a process may end during the same text before the text is dropped. Meanwhile it waits behind all others,
/// because another text may be the cause.
const CRASHES_MAX: u32 = 8;

/// Embeds queries.
struct QueryWorker {
    queue: Arc<EmbeddingQueue>,
    model: Model,
}

/// Embeds texts of tools.
struct ToolWorker {
    queue: Arc<EmbeddingQueue>,
    model: Model,
    vector_file: VectorFile,
    search: Mailbox<SearchMsg>,
    /// The server whose new vectors are not published yet.
    unpublished: Option<ServerId>,
    published: MonotonicTime,
    pause: Duration,
    /// How often a process ended during each text.
    crashes: HashMap<[u8; 32], u32>,
}

/// Starts both threads, unless there is no source of embeddings.
///
/// # Errors
/// A thread could not be started.
pub(super) fn start(
    queue: &Arc<EmbeddingQueue>,
    models: &Models,
    file: PathBuf,
    search: Mailbox<SearchMsg>,
) -> io::Result<()> {
    let Some([query_model, model]) = models.thread_models() else {
        queue.switch_off();
        return Ok(());
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let query_worker = QueryWorker {
        queue: queue.clone(),
        model: query_model,
    };
    thread("requests").spawn(|| query_worker.run()).map(drop)?;
    let (queue, name) = (queue.clone(), models.name());
    let run = move || {
        let cache = queue.clone();
        let mut dimension = None;
        let vector_file = VectorFile::open(file, &name, |hash, vector| {
            dimension = Some(vector.dimension());
            cache.cache(hash, vector);
        });
        let mut worker = ToolWorker {
            queue,
            model,
            vector_file,
            search,
            unpublished: None,
            published: monotonic_now(),
            pause: Duration::ZERO,
            crashes: HashMap::new(),
        };
        if let Some(dimension) = dimension {
            worker.set_dimension(dimension);
        }
        worker.run();
    };
    thread("meanings").spawn(run).map(drop)
}

impl QueryWorker {
    fn run(mut self) {
        loop {
            match self.queue.next_request(self.model.idle()) {
                Job::Request(query) => self.embed_query(query),
                Job::Idle => self.model.release(),
                Job::Tools { .. } => {}
                Job::End => return,
            }
        }
    }

    fn embed_query(&mut self, query: PendingQuery) {
        let texts: Vec<&str> = query.texts.iter().map(|text| &*text.text).collect();
        match self.model.embed(&texts) {
            Ok(vectors) => {
                self.queue.mark_available();
                let vectors: Option<Vec<Vector>> = vectors.into_iter().collect();
                // A query without direction is searched by words.
                if let Some(vectors) = vectors {
                    self.queue.answer_query(query, vectors);
                }
            }
            Err(why) => log_failure(&self.queue, &why),
        }
    }
}

impl ToolWorker {
    fn run(&mut self) {
        loop {
            let (batch, idle) = (self.model.batch(), self.model.idle());
            match self.queue.next_tools(batch, self.pause, idle) {
                Job::Tools {
                    server,
                    texts,
                    last,
                } => self.embed(server, texts, last),
                Job::Idle => self.model.release(),
                Job::Request(_) => {}
                Job::End => return,
            }
        }
    }

    fn embed(&mut self, server: ServerId, texts: Vec<(u64, EmbeddingText)>, last: bool) {
        let unknown = texts
            .into_iter()
            .filter(|(_, text)| !self.queue.is_cached(text));
        let texts: Vec<(u64, EmbeddingText)> = unknown.collect();
        let batch: Vec<&str> = texts.iter().map(|(_, text)| &*text.text).collect();
        let vectors = if batch.is_empty() {
            Ok(Vec::new())
        } else {
            self.model.embed(&batch)
        };
        match vectors {
            Ok(vectors) => {
                self.pause = Duration::ZERO;
                self.queue.count_embedded(texts.len());
                self.cache_vectors(&texts, vectors);
            }
            Err(why @ EmbedError::Provider(ProviderError::Refused(_))) => {
                tracing::warn!(%server, %why, "some of its tools are found by words alone");
            }
            Err(why) => {
                self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
                match why {
                    EmbedError::Died(_) => self.requeue_last(&server, texts),
                    EmbedError::Unfit(_) | EmbedError::BackingOff(_) | EmbedError::Provider(_) => {
                        self.queue.requeue(&server, texts);
                    }
                }
                log_failure(&self.queue, &why);
                return;
            }
        }
        self.notify_embedded(server, last);
    }

    /// Moves texts that ended a process to the end of the queue, and drops them after too many attempts.
    fn requeue_last(&mut self, server: &ServerId, texts: Vec<(u64, EmbeddingText)>) {
        let mut retried = Vec::new();
        for (uses, text) in texts {
            let crashes = self.crashes.entry(text.hash).or_default();
            *crashes += 1;
            if *crashes < CRASHES_MAX {
                retried.push((uses, text));
            } else {
                tracing::warn!(%server, "a text of its tools repeatedly crashes the model; it is searched by words only");
            }
        }
        self.queue.requeue_last(server, retried);
    }

    fn cache_vectors(&mut self, texts: &[(u64, EmbeddingText)], vectors: Vec<Option<Vector>>) {
        for ((_, text), vector) in texts.iter().zip(vectors) {
            let Some(vector) = vector else { continue };
            self.set_dimension(vector.dimension());
            let queue = &self.queue;
            self.vector_file
                .add(&text.hash, &vector, || queue.cached_vectors());
            queue.cache(text.hash, vector);
        }
    }

    fn set_dimension(&self, dimension: usize) {
        if self.queue.set_dimension(dimension) {
            let _ = self.search.send_to_self(SearchMsg::DimensionKnown);
        }
    }

    /// Notifies the search of new vectors of a server: after the last one, and at intervals before.
    fn notify_embedded(&mut self, server: ServerId, last: bool) {
        let now = monotonic_now();
        if let Some(before) = self.unpublished.take_if(|before| *before != server) {
            let _ = self.search.send_to_self(SearchMsg::Embedded(before));
        }
        if last || now.duration_since(self.published) >= PUBLISH_INTERVAL {
            self.published = now;
            self.unpublished = None;
            let _ = self.search.send_to_self(SearchMsg::Embedded(server));
        } else {
            self.unpublished = Some(server);
        }
    }
}

fn log_failure(queue: &EmbeddingQueue, why: &EmbedError) {
    match why {
        EmbedError::Unfit(why) => {
            tracing::error!(%why, "tools are found by words alone");
            queue.switch_off();
        }
        EmbedError::Died(_) | EmbedError::Provider(_) => {
            tracing::warn!(%why, "tools are found by words meanwhile");
        }
        // The failure that started the backoff was already logged.
        EmbedError::BackingOff(_) => tracing::debug!(%why),
    }
}
