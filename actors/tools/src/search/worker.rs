//! The embedding threads: one for queries, for which somebody waits, and one for tools, for which nobody
//! does.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::index::{Text, Vector};
use mgp_protocol::ids::ServerId;

use super::SearchMsg;
use super::embedding_queue::{EmbeddingQueue, EmbeddingWanted, Job};
use super::model::{Failed, Model, Models};
use super::provider::NoVectors;
use super::vector_file::VectorFile;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::time::moment;

/// How often new vectors of one server are published while more are being made: each publication costs time
/// in proportion to the server's tools.
const PUBLISH: Duration = Duration::from_millis(500);
/// How long texts of tools wait after an endpoint failed: first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often a process may end over the same text before the text is given up. Meanwhile it waits behind
/// all others, because another text may be the cause.
const LOSSES: u32 = 8;

/// Embeds queries.
struct Answerer {
    queue: Arc<EmbeddingQueue>,
    model: Model,
}

/// Embeds texts of tools.
struct Worker {
    queue: Arc<EmbeddingQueue>,
    model: Model,
    kept: VectorFile,
    search: Mailbox<SearchMsg>,
    /// Vectors that were made and are not published yet.
    unpublished: Option<ServerId>,
    published: MonotonicTime,
    pause: Duration,
    /// How often a process ended over each text.
    losses: HashMap<[u8; 32], u32>,
}

/// Starts both threads, unless there is no source of embeddings.
///
/// # Errors
/// The system refused a thread.
pub(super) fn start(
    queue: &Arc<EmbeddingQueue>,
    models: &Models,
    file: PathBuf,
    search: Mailbox<SearchMsg>,
) -> io::Result<()> {
    let Some([answering, model]) = models.both() else {
        queue.switch_off();
        return Ok(());
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let answerer = Answerer {
        queue: queue.clone(),
        model: answering,
    };
    thread("requests").spawn(|| answerer.work()).map(drop)?;
    let (queue, name) = (queue.clone(), models.name());
    let run = move || {
        let learning = queue.clone();
        let mut dimension = None;
        let kept = VectorFile::open(file, &name, |hash, vector| {
            dimension = Some(vector.dimension());
            learning.learn(hash, vector);
        });
        let mut worker = Worker {
            queue,
            model,
            kept,
            search,
            unpublished: None,
            published: moment(),
            pause: Duration::ZERO,
            losses: HashMap::new(),
        };
        if let Some(dimension) = dimension {
            worker.measure(dimension);
        }
        worker.work();
    };
    thread("meanings").spawn(run).map(drop)
}

impl Answerer {
    fn work(mut self) {
        loop {
            match self.queue.next_request(self.model.idle()) {
                Job::Request(asked) => self.answer(asked),
                Job::Rest => self.model.rest(),
                Job::Tools { .. } => {}
                Job::End => return,
            }
        }
    }

    fn answer(&mut self, asked: EmbeddingWanted) {
        let texts: Vec<&str> = asked.texts.iter().map(|text| &*text.text).collect();
        match self.model.embed(&texts) {
            Ok(vectors) => {
                self.queue.answered();
                let vectors: Option<Vec<Vector>> = vectors.into_iter().collect();
                // A query without direction is searched by words.
                if let Some(vectors) = vectors {
                    self.queue.answer(asked, vectors);
                }
            }
            Err(why) => failed(&self.queue, &why),
        }
    }
}

impl Worker {
    fn work(&mut self) {
        loop {
            let (batch, idle) = (self.model.batch(), self.model.idle());
            match self.queue.next_tools(batch, self.pause, idle) {
                Job::Tools {
                    server,
                    texts,
                    last,
                } => self.embed(server, texts, last),
                Job::Rest => self.model.rest(),
                Job::Request(_) => {}
                Job::End => return,
            }
        }
    }

    fn embed(&mut self, server: ServerId, texts: Vec<(u64, Text)>, last: bool) {
        let unknown = texts
            .into_iter()
            .filter(|(_, text)| !self.queue.knows(text));
        let texts: Vec<(u64, Text)> = unknown.collect();
        let batch: Vec<&str> = texts.iter().map(|(_, text)| &*text.text).collect();
        let vectors = match batch.is_empty() {
            true => Ok(Vec::new()),
            false => self.model.embed(&batch),
        };
        match vectors {
            Ok(vectors) => {
                self.pause = Duration::ZERO;
                self.queue.count(texts.len());
                self.learn(&texts, vectors);
            }
            Err(why @ Failed::Provider(NoVectors::Refused(_))) => {
                tracing::warn!(%server, %why, "some of its tools are found by words alone");
            }
            Err(why) => {
                self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
                match why {
                    Failed::Died(_) => self.put_behind(&server, texts),
                    Failed::Unfit(_) | Failed::Resting(_) | Failed::Provider(_) => {
                        self.queue.put_back(&server, texts);
                    }
                }
                failed(&self.queue, &why);
                return;
            }
        }
        self.publish(server, last);
    }

    /// Texts over which a process ended go behind the others, and are given up after too many times.
    fn put_behind(&mut self, server: &ServerId, texts: Vec<(u64, Text)>) {
        let mut again = Vec::new();
        for (uses, text) in texts {
            let losses = self.losses.entry(text.hash).or_default();
            *losses += 1;
            if *losses < LOSSES {
                again.push((uses, text));
            } else {
                tracing::warn!(%server, "a text of its tools ends the model each time; it is searched by its words");
            }
        }
        self.queue.put_behind(server, again);
    }

    fn learn(&mut self, texts: &[(u64, Text)], vectors: Vec<Option<Vector>>) {
        for ((_, text), vector) in texts.iter().zip(vectors) {
            let Some(vector) = vector else { continue };
            self.measure(vector.dimension());
            let queue = &self.queue;
            self.kept.add(&text.hash, &vector, || queue.known());
            queue.learn(text.hash, vector);
        }
    }

    fn measure(&self, dimension: usize) {
        if self.queue.measured(dimension) {
            let _ = self.search.remind(SearchMsg::Measured);
        }
    }

    /// Tells the search that vectors of a server were made: at the end, and at intervals before it.
    fn publish(&mut self, server: ServerId, last: bool) {
        let now = moment();
        if let Some(before) = self.unpublished.take_if(|before| *before != server) {
            let _ = self.search.remind(SearchMsg::Embedded(before));
        }
        if last || now.since(self.published) >= PUBLISH {
            self.published = now;
            self.unpublished = None;
            let _ = self.search.remind(SearchMsg::Embedded(server));
        } else {
            self.unpublished = Some(server);
        }
    }
}

fn failed(queue: &EmbeddingQueue, why: &Failed) {
    match why {
        Failed::Unfit(why) => {
            tracing::error!(%why, "tools are found by words alone");
            queue.switch_off();
        }
        Failed::Died(_) | Failed::Provider(_) => {
            tracing::warn!(%why, "tools are found by words meanwhile");
        }
        // The search learned of it when the model failed.
        Failed::Resting(_) => tracing::debug!(%why),
    }
}
