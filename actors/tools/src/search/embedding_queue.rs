//! The queue of texts to be embedded and the cache of known vectors, between searches and the embedding
//! threads.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::tools::index::{Memo, ServerIndex, Text, Vector};
use mgp_protocol::ids::ServerId;
use tokio::sync::oneshot;

/// Cached vectors of tools, two per tool and one per server: 28 MiB with the built-in model. Above some
/// 32,000 tools the least recently used are embedded again when their server
/// returns.
pub(super) const REMEMBERED: usize = 65_536;
/// Cached vectors of queries, half a MiB; agents tend to repeat queries.
const ASKED: usize = 1024;

/// Queue and cache, shared by the search and the embedding threads.
#[derive(Debug)]
pub(super) struct EmbeddingQueue {
    work: Mutex<Work>,
    more: Condvar,
    tools: Mutex<Memo>,
    requests: Mutex<Memo>,
    /// Dimension of the model's vectors; 0 while unknown or without a model.
    dimension: AtomicUsize,
    /// There is no model, or it failed for good.
    off: AtomicBool,
    /// Texts of tools embedded since the start.
    made: AtomicU64,
    /// How often tools were called, as far as recorded.
    uses: Uses,
}

/// How often the tools of each server were called.
pub(super) type Uses = HashMap<ServerId, HashMap<Box<str>, u64>>;

/// Waiting texts with the number of calls of their tool, the most called first.
pub(super) type Wanted = VecDeque<(u64, Text)>;

/// What waits. Texts are bounded by what servers may offer, queries by the searches that may wait.
#[derive(Debug, Default)]
struct Work {
    requests: VecDeque<EmbeddingWanted>,
    servers: VecDeque<(ServerId, Wanted)>,
    /// The model works again after a failure.
    answers: bool,
    /// The server whose texts are being embedded; `None` when they have become outdated.
    current: Option<ServerId>,
    closed: bool,
}

/// A query whose embedding is waited for.
#[derive(Debug)]
pub(super) struct EmbeddingWanted {
    pub(super) texts: Vec<Text>,
    reply: oneshot::Sender<Vec<Vector>>,
}

/// The next job of a thread.
#[derive(Debug)]
pub(super) enum Job {
    /// A query that is waited for.
    Request(EmbeddingWanted),
    /// Texts of tools; `last` when the server has no more.
    Tools {
        server: ServerId,
        texts: Vec<(u64, Text)>,
        last: bool,
    },
    /// Nothing came for a long time: memory can be freed.
    Rest,
    /// The thread is to end.
    End,
}

impl Work {
    /// The texts of the server whose next text is of the most called tool; among equals, the first
    /// server.
    fn most_used(&mut self) -> Option<(ServerId, Wanted)> {
        let next = |(_, texts): &(ServerId, Wanted)| texts.front().map_or(0, |(uses, _)| *uses);
        let uses = self.servers.iter().map(next).max()?;
        let at = self
            .servers
            .iter()
            .position(|waiting| next(waiting) == uses)?;
        self.servers.remove(at)
    }
}

impl EmbeddingQueue {
    /// For a model of this dimension, if known.
    pub(super) fn new(dimension: Option<usize>, uses: Uses) -> Self {
        Self {
            uses,
            work: Mutex::default(),
            more: Condvar::new(),
            tools: Mutex::new(Memo::new(REMEMBERED)),
            requests: Mutex::new(Memo::new(ASKED)),
            dimension: AtomicUsize::new(dimension.unwrap_or(0)),
            off: AtomicBool::new(false),
            made: AtomicU64::new(0),
        }
    }

    pub(super) fn dimension(&self) -> Option<usize> {
        let known = self.dimension.load(Ordering::Acquire);
        (known > 0).then_some(known)
    }

    /// Sets the dimension; true when it was unknown.
    pub(super) fn measured(&self, dimension: usize) -> bool {
        self.dimension.swap(dimension, Ordering::AcqRel) != dimension
    }

    /// Texts of tools embedded since the start.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Texts that wait.
    pub(super) fn waiting(&self) -> usize {
        let work = self.work();
        work.servers.iter().map(|(_, texts)| texts.len()).sum()
    }

    /// The vectors of a query: at once if cached, else when a thread has made them; `None` when the patience
    /// is over or there is no model.
    pub(super) async fn meanings(
        &self,
        texts: &[String],
        patience: Duration,
    ) -> Option<Vec<Vector>> {
        if self.off.load(Ordering::Acquire) {
            return None;
        }
        let texts: Vec<Text> = texts.iter().map(|text| named(text)).collect();
        let mut known: Vec<Option<Vector>> = {
            let mut requests = lock(&self.requests);
            texts.iter().map(|text| requests.get(text)).collect()
        };
        let unknown = texts
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_none());
        let unknown: Vec<Text> = unknown.map(|(text, _)| text.clone()).collect();
        if !unknown.is_empty() {
            let (reply, answer) = oneshot::channel();
            self.queue(EmbeddingWanted {
                texts: unknown,
                reply,
            });
            let made = tokio::time::timeout(patience, answer).await.ok()?.ok()?;
            let gaps = known.iter_mut().filter(|known| known.is_none());
            gaps.zip(made).for_each(|(gap, made)| *gap = Some(made));
        }
        known.into_iter().collect()
    }

    /// Queues a query. Those whose askers have given up are removed first.
    fn queue(&self, asked: EmbeddingWanted) {
        let mut work = self.work();
        work.requests.retain(|asked| !asked.reply.is_closed());
        work.requests.push_back(asked);
        drop(work);
        self.more.notify_all();
    }

    /// Answers a query and caches its vectors.
    pub(super) fn answer(&self, asked: EmbeddingWanted, vectors: Vec<Vector>) {
        let mut requests = lock(&self.requests);
        for (text, vector) in asked.texts.iter().zip(&vectors) {
            requests.insert(text.hash, vector.clone());
        }
        drop(requests);
        let _ = asked.reply.send(vectors);
    }

    /// The texts of a server's index that have no vectors yet, each once, those of the most called tools
    /// first.
    pub(super) fn missing(&self, shelf: &ServerIndex) -> Wanted {
        let mut seen = std::collections::HashSet::new();
        let mut tools = lock(&self.tools);
        let uses = self.uses.get(shelf.server());
        let uses = |tool: &str| uses.and_then(|uses| uses.get(tool)).copied().unwrap_or(0);
        let mut texts = shelf.texts_by(&uses);
        texts.sort_by_key(|(uses, _)| std::cmp::Reverse(*uses));
        let unknown = texts
            .into_iter()
            .filter(|(_, text)| tools.get(text).is_none());
        let once = unknown.filter(|(_, text)| seen.insert(text.hash));
        once.map(|(uses, text)| (uses, text.clone())).collect()
    }

    /// The index with all known vectors filled in.
    pub(super) fn fill(&self, shelf: &ServerIndex) -> ServerIndex {
        let mut tools = lock(&self.tools);
        shelf.with_vectors(&mut |text| tools.get(text))
    }

    /// Queues a server's texts; those queued before are outdated.
    pub(super) fn want(&self, server: &ServerId, texts: Wanted) {
        let mut work = self.work();
        work.servers.retain(|(other, _)| other != server);
        work.current = work.current.take().filter(|current| current != server);
        if !texts.is_empty() && !self.off.load(Ordering::Acquire) {
            work.servers.push_back((server.clone(), texts));
            self.more.notify_all();
        }
    }

    /// A server is gone: drops its texts.
    pub(super) fn forget(&self, server: &ServerId) {
        self.want(server, VecDeque::new());
    }

    /// Embedding ends for good; those who wait are told.
    pub(super) fn switch_off(&self) {
        self.off.store(true, Ordering::Release);
        let mut work = self.work();
        work.requests.clear();
        work.servers.clear();
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.work().closed = true;
        self.more.notify_all();
    }

    /// True when the vector of a tool's text is cached.
    pub(super) fn knows(&self, text: &Text) -> bool {
        lock(&self.tools).get(text).is_some()
    }

    /// Caches a vector.
    pub(super) fn learn(&self, hash: [u8; 32], vector: Vector) {
        lock(&self.tools).insert(hash, vector);
    }

    pub(super) fn count(&self, made: usize) {
        self.made.fetch_add(made as u64, Ordering::Relaxed);
    }

    /// All cached vectors of tools.
    pub(super) fn known(&self) -> Vec<([u8; 32], Vector)> {
        let tools = lock(&self.tools);
        let all = tools.iter();
        all.map(|(hash, vector)| (*hash, vector.clone())).collect()
    }

    /// The next query. After `idle` without one: `Job::Rest`.
    pub(super) fn next_request(&self, idle: Option<Duration>) -> Job {
        let mut work = self.work();
        loop {
            if work.closed {
                return Job::End;
            }
            while let Some(asked) = work.requests.pop_front() {
                // Queries whose askers have gone are skipped.
                if !asked.reply.is_closed() {
                    return Job::Request(asked);
                }
            }
            let (woken, waited) = self.wait(work, idle);
            if waited {
                return Job::Rest;
            }
            work = woken;
        }
    }

    /// The next texts of tools, at most `batch`, not before `pause` is over or the model is known to work
    /// again. After `idle` without any: `Job::Rest`.
    pub(super) fn next_tools(&self, batch: usize, pause: Duration, idle: Option<Duration>) -> Job {
        let mut work = self.work();
        let mut rested = pause.is_zero();
        loop {
            if work.closed {
                return Job::End;
            }
            rested |= std::mem::take(&mut work.answers);
            if rested && let Some((server, mut texts)) = work.most_used() {
                let rest = texts.split_off(batch.min(texts.len()));
                let last = rest.is_empty();
                if !last {
                    work.servers.push_front((server.clone(), rest));
                }
                work.current = Some(server.clone());
                return Job::Tools {
                    server,
                    texts: texts.into(),
                    last,
                };
            }
            let (woken, waited) = self.wait(work, if rested { idle } else { Some(pause) });
            if rested && waited {
                return Job::Rest;
            }
            rested |= waited;
            work = woken;
        }
    }

    /// Waits for more; true when the whole time passed.
    fn wait<'w>(
        &self,
        work: MutexGuard<'w, Work>,
        most: Option<Duration>,
    ) -> (MutexGuard<'w, Work>, bool) {
        match most {
            None => {
                let woken = self.more.wait(work);
                (woken.unwrap_or_else(PoisonError::into_inner), false)
            }
            Some(most) => {
                let waited = self.more.wait_timeout(work, most);
                let (woken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                (woken, waited.timed_out())
            }
        }
    }

    /// The model has answered: a pause after a failure can end.
    pub(super) fn answered(&self) {
        self.work().answers = true;
        self.more.notify_all();
    }

    /// Puts texts back that could not be embedded now, unless they are outdated.
    pub(super) fn put_back(&self, server: &ServerId, texts: Vec<(u64, Text)>) {
        let mut work = self.work();
        if work.current.as_ref() != Some(server) {
            return;
        }
        match work.servers.iter_mut().find(|(other, _)| other == server) {
            Some((_, rest)) => texts.into_iter().rev().for_each(|t| rest.push_front(t)),
            None => work.servers.push_front((server.clone(), texts.into())),
        }
    }

    /// Puts texts behind all others of their server, unless they are outdated.
    pub(super) fn put_behind(&self, server: &ServerId, texts: Vec<(u64, Text)>) {
        let mut work = self.work();
        if work.current.as_ref() != Some(server) || texts.is_empty() {
            return;
        }
        // The number of calls decides the order; 0 puts these last.
        let texts = texts.into_iter().map(|(_, text)| (0, text));
        match work.servers.iter_mut().find(|(other, _)| other == server) {
            Some((_, rest)) => rest.extend(texts),
            None => work.servers.push_back((server.clone(), texts.collect())),
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }
}

fn named(text: &str) -> Text {
    Text {
        hash: *blake3::hash(text.as_bytes()).as_bytes(),
        text: text.into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: Duration = Duration::ZERO;

    fn texts(all: &[&str]) -> Wanted {
        all.iter().map(|text| (0, named(text))).collect()
    }

    fn vector() -> Vector {
        Vector::of(&[1.0, 2.0]).unwrap()
    }

    /// What is to be embedded next of tools.
    fn taken(queue: &EmbeddingQueue) -> (String, Vec<String>, bool) {
        match queue.next_tools(2, NO, Some(NO)) {
            Job::Tools {
                server,
                texts,
                last,
            } => {
                let texts = texts.iter().map(|(_, text)| text.text.to_string());
                (server.to_string(), texts.collect(), last)
            }
            other @ (Job::Request(_) | Job::Rest | Job::End) => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_first_and_is_remembered() {
        let queue = EmbeddingQueue::new(Some(2), Uses::new());
        queue.want(&ServerId::new("a"), texts(&["one", "two", "three"]));
        let query = ["query".to_owned()];
        let asking = queue.meanings(&query, Duration::from_secs(1));
        let answering = async {
            let Job::Request(asked) = queue.next_request(None) else {
                panic!("somebody waits");
            };
            queue.answer(asked, vec![vector()]);
        };
        let (meanings, ()) = tokio::join!(asking, answering);
        assert_eq!(meanings, Some(vec![vector()]));
        let again = queue.meanings(&query, NO).await;
        assert_eq!(again, Some(vec![vector()]), "nobody is asked a second time");
        let both = ["query".to_owned(), "more".to_owned()];
        let asking = queue.meanings(&both, Duration::from_secs(1));
        let answering = async {
            let Job::Request(asked) = queue.next_request(None) else {
                panic!("somebody waits");
            };
            let asked_for: Vec<_> = asked.texts.iter().map(|text| &*text.text).collect();
            assert_eq!(asked_for, ["more"], "what is known is not made again");
            queue.answer(asked, vec![Vector::of(&[5.0, 1.0]).unwrap()]);
        };
        let (meanings, ()) = tokio::join!(asking, answering);
        assert_eq!(meanings.map(|all| all[0].clone()), Some(vector()));
        let other = ["other".to_owned()];
        let late = queue.meanings(&other, Duration::from_secs(1)).await;
        assert_eq!(late, None);
        let next = queue.next_request(Some(NO));
        assert!(matches!(next, Job::Rest), "who went away does not wait");
        assert_eq!(taken(&queue).1, ["one", "two"]);
    }

    #[test]
    fn what_is_stale_is_not_done() {
        let queue = EmbeddingQueue::new(None, Uses::new());
        let (a, b) = (ServerId::new("a"), ServerId::new("b"));
        queue.want(&a, texts(&["old one", "old two", "old three"]));
        queue.want(&b, texts(&["other"]));
        assert_eq!(taken(&queue).1, ["old one", "old two"]);
        queue.put_back(&a, texts(&["old one"]).into());
        assert_eq!(queue.waiting(), 3, "they are tried again");
        assert_eq!(taken(&queue).1, ["old one", "old three"]);
        queue.want(&a, texts(&["new"]));
        queue.put_back(&a, texts(&["old one"]).into());
        assert_eq!(taken(&queue), ("b".into(), vec!["other".into()], true));
        queue.forget(&a);
        assert_eq!(queue.waiting(), 0);
        assert!(matches!(queue.next_tools(2, NO, Some(NO)), Job::Rest));
        queue.want(&a, texts(&["x"]));
        queue.switch_off();
        queue.want(&a, texts(&["x"]));
        assert_eq!(queue.waiting(), 0);
        queue.close();
        assert!(matches!(queue.next_tools(2, NO, None), Job::End));
        assert!(matches!(queue.next_request(None), Job::End));
    }

    #[test]
    fn after_a_failure_texts_wait_and_requests_do_not() {
        let queue = EmbeddingQueue::new(None, Uses::new());
        queue.want(&ServerId::new("a"), texts(&["one"]));
        let (reply, _answer) = oneshot::channel();
        let asked = EmbeddingWanted {
            texts: Vec::new(),
            reply,
        };
        queue.work().requests.push_back(asked);
        let pause = Duration::from_millis(20);
        assert!(matches!(queue.next_request(None), Job::Request(_)));
        let began = mgp_runtime::time::moment();
        assert!(matches!(
            queue.next_tools(1, pause, None),
            Job::Tools { .. }
        ));
        assert!(mgp_runtime::time::moment().since(began) >= pause);
        queue.want(&ServerId::new("a"), texts(&["one"]));
        queue.answered();
        let long = Duration::from_secs(3_600);
        assert!(matches!(queue.next_tools(1, long, None), Job::Tools { .. }));
    }

    /// At the first start with many tools, those that are called are found by meaning first.
    #[test]
    fn what_is_called_most_goes_first() {
        let queue = EmbeddingQueue::new(None, Uses::new());
        let ranked = |all: &[(u64, &str)]| -> Wanted {
            all.iter()
                .map(|(uses, text)| (*uses, named(text)))
                .collect()
        };
        queue.want(
            &ServerId::new("a"),
            ranked(&[(3, "a3"), (1, "a1"), (0, "a0")]),
        );
        queue.want(
            &ServerId::new("b"),
            ranked(&[(9, "b9"), (2, "b2"), (0, "b0")]),
        );
        let order: Vec<String> = std::iter::from_fn(|| match queue.next_tools(1, NO, Some(NO)) {
            Job::Tools { texts, .. } => Some(texts[0].1.text.to_string()),
            Job::Request(_) | Job::Rest | Job::End => None,
        })
        .collect();
        assert_eq!(order, ["b9", "a3", "b2", "a1", "a0", "b0"]);
    }
}
