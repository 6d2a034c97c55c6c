//! The threads that make meanings: one of requests, for which somebody waits, and one of tools, which
//! takes what nobody else wants of the machine.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::index::{Text, Vector};
use mgp_engine::moment::Moment;
use mgp_protocol::ids::ServerId;

use super::FinderMsg;
use super::desk::{Asked, Desk, Job};
use super::kept::Kept;
use super::model::{Embedding, Failed, Model, Shared};
use super::provider::Unanswered;
use crate::mailbox::Mailbox;
use crate::time::moment;

/// While a server has many tools, what is known of them is published this often: each time costs as
/// much as the server has tools.
const PUBLISH: Duration = Duration::from_millis(500);
/// How long texts of tools wait after an endpoint failed: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The least that a thread can be given. 10,000 tools take five minutes of a core.
const NICE: i32 = 19;

/// Makes the meanings of requests.
struct Answerer {
    desk: Arc<Desk>,
    model: Model,
}

/// Makes the meanings of tools.
struct Worker {
    desk: Arc<Desk>,
    model: Model,
    kept: Kept,
    finder: Mailbox<FinderMsg>,
    /// What was made and is not published.
    unpublished: Option<ServerId>,
    published: Moment,
    pause: Duration,
}

/// Starts both, unless there is nothing to embed with.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn start(
    desk: &Arc<Desk>,
    embedding: Embedding,
    file: PathBuf,
    finder: Mailbox<FinderMsg>,
) -> io::Result<()> {
    let shared = Shared::default();
    let models = (
        Model::of(&embedding, &shared),
        Model::of(&embedding, &shared),
    );
    let (Some(model), Some(answering)) = models else {
        desk.switch_off();
        return Ok(());
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let answerer = Answerer {
        desk: desk.clone(),
        model: answering,
    };
    thread("requests").spawn(|| answerer.work()).map(drop)?;
    let desk = desk.clone();
    let run = move || {
        // For this thread alone, and those that it starts. Without it, it works as others do.
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::warn!(%error, "meanings of tools are made at the priority of calls");
        }
        let learning = desk.clone();
        let mut dimension = None;
        let kept = Kept::open(file, &embedding.name(), |hash, vector| {
            dimension = Some(vector.dimension());
            learning.learn(hash, vector);
        });
        let mut worker = Worker {
            desk,
            model,
            kept,
            finder,
            unpublished: None,
            published: moment(),
            pause: Duration::ZERO,
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
            match self.desk.next_request(self.model.idle()) {
                Job::Request(asked) => self.answer(asked),
                Job::Rest => self.model.rest(),
                Job::Tools { .. } => {}
                Job::End => return,
            }
        }
    }

    fn answer(&mut self, asked: Asked) {
        let texts: Vec<&str> = asked.texts.iter().map(|text| &*text.text).collect();
        match self.model.embed(&texts) {
            Ok(vectors) => {
                self.desk.answered();
                let vectors: Option<Vec<Vector>> = vectors.into_iter().collect();
                // A request without direction is searched by its words.
                if let Some(vectors) = vectors {
                    self.desk.answer(asked, vectors);
                }
            }
            Err(why) => failed(&self.desk, &why),
        }
    }
}

impl Worker {
    fn work(&mut self) {
        loop {
            let (batch, idle) = (self.model.batch(), self.model.idle());
            match self.desk.next_tools(batch, self.pause, idle) {
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
        let unknown = texts.into_iter().filter(|(_, text)| !self.desk.knows(text));
        let texts: Vec<(u64, Text)> = unknown.collect();
        let batch: Vec<&str> = texts.iter().map(|(_, text)| &*text.text).collect();
        let vectors = match batch.is_empty() {
            true => Ok(Vec::new()),
            false => self.model.embed(&batch),
        };
        match vectors {
            Ok(vectors) => {
                self.pause = Duration::ZERO;
                self.desk.count(texts.len());
                self.learn(&texts, vectors);
            }
            Err(why @ Failed::Provider(Unanswered::Refused(_))) => {
                tracing::warn!(%server, %why, "some of its tools are found by words alone");
            }
            Err(why) => {
                self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
                self.desk.put_back(&server, texts);
                failed(&self.desk, &why);
                return;
            }
        }
        self.publish(server, last);
    }

    fn learn(&mut self, texts: &[(u64, Text)], vectors: Vec<Option<Vector>>) {
        for ((_, text), vector) in texts.iter().zip(vectors) {
            let Some(vector) = vector else { continue };
            self.measure(vector.dimension());
            let desk = &self.desk;
            self.kept.add(&text.hash, &vector, || desk.known());
            desk.learn(text.hash, vector);
        }
    }

    fn measure(&self, dimension: usize) {
        if self.desk.measured(dimension) {
            let _ = self.finder.remind(FinderMsg::Measured);
        }
    }

    /// Tells the finder of what was made of a server: when that is all, and now and then before.
    fn publish(&mut self, server: ServerId, last: bool) {
        let now = moment();
        if let Some(before) = self.unpublished.take_if(|before| *before != server) {
            let _ = self.finder.remind(FinderMsg::Embedded(before));
        }
        if last || now.since(self.published) >= PUBLISH {
            self.published = now;
            self.unpublished = None;
            let _ = self.finder.remind(FinderMsg::Embedded(server));
        } else {
            self.unpublished = Some(server);
        }
    }
}

fn failed(desk: &Desk, why: &Failed) {
    match why {
        Failed::Builtin(why) => {
            tracing::error!(%why, "tools are found by words alone");
            desk.switch_off();
        }
        Failed::Provider(why) => {
            tracing::warn!(%why, "the embedding provider gives no meanings; tools are found by words");
        }
    }
}
