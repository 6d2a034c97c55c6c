//! The thread that embeds. Who waits for the meaning of a request goes first.

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
use super::model::{Embedding, Failed, Model};
use super::provider::Unanswered;
use crate::mailbox::Mailbox;
use crate::time::moment;

/// While a server has many tools, what is known of them is published this often: each time costs as
/// much as the server has tools.
const PUBLISH: Duration = Duration::from_millis(500);
/// How long texts of tools wait after an endpoint failed: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

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

/// Starts it, unless there is nothing to embed with.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn start(
    desk: &Arc<Desk>,
    embedding: Embedding,
    file: PathBuf,
    finder: Mailbox<FinderMsg>,
) -> io::Result<()> {
    let Some(model) = Model::of(&embedding) else {
        desk.switch_off();
        return Ok(());
    };
    let desk = desk.clone();
    let run = move || {
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
    let thread = std::thread::Builder::new().name("meanings".into());
    thread.spawn(run).map(drop)
}

impl Worker {
    fn work(&mut self) {
        loop {
            let (batch, idle) = (self.model.batch(), self.model.idle());
            match self.desk.next(batch, self.pause, idle) {
                Job::Request(asked) => self.answer(asked),
                Job::Tools {
                    server,
                    texts,
                    last,
                } => self.embed(server, texts, last),
                Job::Rest => self.model.rest(),
                Job::End => return,
            }
        }
    }

    fn answer(&mut self, asked: Asked) {
        let texts: Vec<&str> = asked.texts.iter().map(|text| &*text.text).collect();
        match self.model.embed(&texts) {
            Ok(vectors) => {
                // It answers again, so what waits need not.
                self.pause = Duration::ZERO;
                let vectors: Option<Vec<Vector>> = vectors.into_iter().collect();
                // A request without direction is searched by its words.
                if let Some(vectors) = vectors {
                    self.desk.answer(asked, vectors);
                }
            }
            Err(why) => self.failed(&why),
        }
    }

    fn embed(&mut self, server: ServerId, texts: Vec<Text>, last: bool) {
        let unknown = texts.into_iter().filter(|text| !self.desk.knows(text));
        let texts: Vec<Text> = unknown.collect();
        let batch: Vec<&str> = texts.iter().map(|text| &*text.text).collect();
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
                self.failed(&why);
                return;
            }
        }
        self.publish(server, last);
    }

    fn learn(&mut self, texts: &[Text], vectors: Vec<Option<Vector>>) {
        for (text, vector) in texts.iter().zip(vectors) {
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

    fn failed(&mut self, why: &Failed) {
        match why {
            Failed::Builtin(why) => {
                tracing::error!(%why, "tools are found by words alone");
                self.desk.switch_off();
            }
            Failed::Provider(why) => {
                tracing::warn!(%why, "the embedding provider gives no meanings; tools are found by words");
            }
        }
    }
}
