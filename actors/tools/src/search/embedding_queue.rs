//! The queue of texts to embed and the cache of vectors, between searches and the embedding threads.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::tools::index::{EmbeddingText, ServerIndex, Vector, VectorCache};
use mgp_protocol::ids::ServerId;
use tokio::sync::oneshot;

/// Cached vectors of tools, two per tool and one per server: 28 MiB with the built-in model. Above some 32,000 tools the
/// least recently used are embedded again when their server returns.
pub(super) const CACHED_TOOLS_MAX: usize = 65_536;
/// Cached vectors of queries, half a MiB; agents tend to repeat queries.
const CACHED_QUERIES_MAX: usize = 1024;

/// Queue and cache, shared by the search and the embedding threads.
#[derive(Debug)]
pub(super) struct EmbeddingQueue {
    work: Mutex<Work>,
    wakeup: Condvar,
    tools: Mutex<VectorCache>,
    queries: Mutex<VectorCache>,
    /// Dimension of the model's vectors; 0 while unknown or without a model.
    dimension: AtomicUsize,
    /// There is no model, or it failed permanently.
    is_off: AtomicBool,
    /// Texts of tools embedded since the start.
    embedded: AtomicU64,
    /// How often tools were called, as far as the audit log shows.
    uses: UsageCounts,
}

/// How often the tools of each server were called.
pub(super) type UsageCounts = HashMap<ServerId, HashMap<Box<str>, u64>>;

/// Queued texts with the number of calls of their tool, the most called first.
pub(super) type PendingTexts = VecDeque<(u64, EmbeddingText)>;

/// The queue. Texts are bounded by the servers' offers, queries by the searches that may wait.
#[derive(Debug, Default)]
struct Work {
    requests: VecDeque<PendingQuery>,
    servers: VecDeque<(ServerId, PendingTexts)>,
    /// The model works again after a failure.
    is_available: bool,
    /// The server whose texts are being embedded; `None` once they are outdated.
    current: Option<ServerId>,
    closed: bool,
}

/// A query that waits for its embedding.
#[derive(Debug)]
pub(super) struct PendingQuery {
    pub(super) texts: Vec<EmbeddingText>,
    reply: oneshot::Sender<Vec<Vector>>,
}

/// The next job of a thread.
#[derive(Debug)]
pub(super) enum Job {
    /// A query.
    Request(PendingQuery),
    /// Texts of tools; `last` when the server has no more.
    Tools {
        server: ServerId,
        texts: Vec<(u64, EmbeddingText)>,
        last: bool,
    },
    /// Nothing arrived for a long time: memory can be freed.
    Idle,
    /// The thread must end.
    End,
}

impl Work {
    /// The texts of the server whose next text belongs to the most called tool; among equals, of the first server.
    fn most_used(&mut self) -> Option<(ServerId, PendingTexts)> {
        let next =
            |(_, texts): &(ServerId, PendingTexts)| texts.front().map_or(0, |(uses, _)| *uses);
        let uses = self.servers.iter().map(next).max()?;
        let position = self
            .servers
            .iter()
            .position(|queued| next(queued) == uses)?;
        self.servers.remove(position)
    }
}

impl EmbeddingQueue {
    /// A queue for a model of this dimension, if known.
    pub(super) fn new(dimension: Option<usize>, uses: UsageCounts) -> Self {
        Self {
            uses,
            work: Mutex::default(),
            wakeup: Condvar::new(),
            tools: Mutex::new(VectorCache::new(CACHED_TOOLS_MAX)),
            queries: Mutex::new(VectorCache::new(CACHED_QUERIES_MAX)),
            dimension: AtomicUsize::new(dimension.unwrap_or(0)),
            is_off: AtomicBool::new(false),
            embedded: AtomicU64::new(0),
        }
    }

    pub(super) fn dimension(&self) -> Option<usize> {
        let known = self.dimension.load(Ordering::Acquire);
        (known > 0).then_some(known)
    }

    /// Sets the dimension; true when it was unknown.
    pub(super) fn set_dimension(&self, dimension: usize) -> bool {
        self.dimension.swap(dimension, Ordering::AcqRel) != dimension
    }

    /// Texts of tools embedded since the start.
    pub(super) fn embedded(&self) -> u64 {
        self.embedded.load(Ordering::Relaxed)
    }

    /// The number of queued texts.
    pub(super) fn pending_texts(&self) -> usize {
        let work = self.lock_work();
        work.servers.iter().map(|(_, texts)| texts.len()).sum()
    }

    /// The vectors of a query: at once if cached, otherwise once a thread has computed them; `None` on timeout, or without
    /// a model.
    pub(super) async fn embed_query(
        &self,
        texts: &[String],
        timeout: Duration,
    ) -> Option<Vec<Vector>> {
        if self.is_off.load(Ordering::Acquire) {
            return None;
        }
        let texts: Vec<EmbeddingText> = texts.iter().map(|text| to_text(text)).collect();
        let mut known: Vec<Option<Vector>> = {
            let mut requests = lock(&self.queries);
            texts.iter().map(|text| requests.get(text)).collect()
        };
        let unknown = texts
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_none());
        let unknown: Vec<EmbeddingText> = unknown.map(|(text, _)| text.clone()).collect();
        if !unknown.is_empty() {
            let (reply, answer) = oneshot::channel();
            self.push_query(PendingQuery {
                texts: unknown,
                reply,
            });
            let computed = tokio::time::timeout(timeout, answer).await.ok()?.ok()?;
            let missing = known.iter_mut().filter(|known| known.is_none());
            missing
                .zip(computed)
                .for_each(|(slot, vector)| *slot = Some(vector));
        }
        known.into_iter().collect()
    }

    /// Queues a query. Abandoned queries are removed first.
    fn push_query(&self, query: PendingQuery) {
        let mut work = self.lock_work();
        work.requests.retain(|queued| !queued.reply.is_closed());
        work.requests.push_back(query);
        drop(work);
        self.wakeup.notify_all();
    }

    /// Answers a query and caches its vectors.
    pub(super) fn answer_query(&self, query: PendingQuery, vectors: Vec<Vector>) {
        let mut requests = lock(&self.queries);
        for (text, vector) in query.texts.iter().zip(&vectors) {
            requests.insert(text.hash, vector.clone());
        }
        drop(requests);
        let _ = query.reply.send(vectors);
    }

    /// The texts of a server's index without vectors, each once, those of the most called tools first.
    pub(super) fn missing_texts(&self, index: &ServerIndex) -> PendingTexts {
        let mut seen = std::collections::HashSet::new();
        let mut tools = lock(&self.tools);
        let uses = self.uses.get(index.server());
        let uses = |tool: &str| uses.and_then(|uses| uses.get(tool)).copied().unwrap_or(0);
        let mut texts = index.texts_by_usage(&uses);
        texts.sort_by_key(|(uses, _)| std::cmp::Reverse(*uses));
        let unknown = texts
            .into_iter()
            .filter(|(_, text)| tools.get(text).is_none());
        let unique = unknown.filter(|(_, text)| seen.insert(text.hash));
        unique.map(|(uses, text)| (uses, text.clone())).collect()
    }

    /// The index with all known vectors.
    pub(super) fn fill(&self, index: &ServerIndex) -> ServerIndex {
        let mut tools = lock(&self.tools);
        index.with_vectors(&mut |text| tools.get(text))
    }

    /// Queues a server's texts and drops the outdated ones.
    pub(super) fn push_texts(&self, server: &ServerId, texts: PendingTexts) {
        let mut work = self.lock_work();
        work.servers.retain(|(other, _)| other != server);
        work.current = work.current.take().filter(|current| current != server);
        if !texts.is_empty() && !self.is_off.load(Ordering::Acquire) {
            work.servers.push_back((server.clone(), texts));
            self.wakeup.notify_all();
        }
    }

    /// Drops the texts of a removed server.
    pub(super) fn forget(&self, server: &ServerId) {
        self.push_texts(server, VecDeque::new());
    }

    /// Ends embedding permanently; waiters get no vectors.
    pub(super) fn switch_off(&self) {
        self.is_off.store(true, Ordering::Release);
        let mut work = self.lock_work();
        work.requests.clear();
        work.servers.clear();
    }

    /// Ends the threads.
    pub(super) fn close(&self) {
        self.lock_work().closed = true;
        self.wakeup.notify_all();
    }

    /// Whether the vector of a tool's text is cached.
    pub(super) fn is_cached(&self, text: &EmbeddingText) -> bool {
        lock(&self.tools).get(text).is_some()
    }

    pub(super) fn cache(&self, hash: [u8; 32], vector: Vector) {
        lock(&self.tools).insert(hash, vector);
    }

    pub(super) fn count_embedded(&self, count: usize) {
        self.embedded.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// All cached vectors of tools.
    pub(super) fn cached_vectors(&self) -> Vec<([u8; 32], Vector)> {
        let tools = lock(&self.tools);
        let all = tools.iter();
        all.map(|(hash, vector)| (*hash, vector.clone())).collect()
    }

    /// The next query; `Job::Idle` after `idle` without one.
    pub(super) fn next_request(&self, idle: Option<Duration>) -> Job {
        let mut work = self.lock_work();
        loop {
            if work.closed {
                return Job::End;
            }
            while let Some(query) = work.requests.pop_front() {
                // Abandoned queries are skipped.
                if !query.reply.is_closed() {
                    return Job::Request(query);
                }
            }
            let (woken, timed_out) = self.wait(work, idle);
            if timed_out {
                return Job::Idle;
            }
            work = woken;
        }
    }

    /// The next texts of tools, at most `batch`. Waits for the end of `pause`, or until the model is known to work again.
    /// `Job::Idle` after `idle` without texts.
    pub(super) fn next_tools(&self, batch: usize, pause: Duration, idle: Option<Duration>) -> Job {
        let mut work = self.lock_work();
        let mut is_pause_over = pause.is_zero();
        loop {
            if work.closed {
                return Job::End;
            }
            is_pause_over |= std::mem::take(&mut work.is_available);
            if is_pause_over && let Some((server, mut texts)) = work.most_used() {
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
            let timeout = if is_pause_over { idle } else { Some(pause) };
            let (woken, timed_out) = self.wait(work, timeout);
            if is_pause_over && timed_out {
                return Job::Idle;
            }
            is_pause_over |= timed_out;
            work = woken;
        }
    }

    /// Waits for work; the boolean is true after a timeout.
    fn wait<'w>(
        &self,
        work: MutexGuard<'w, Work>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'w, Work>, bool) {
        match timeout {
            None => {
                let woken = self.wakeup.wait(work);
                (woken.unwrap_or_else(PoisonError::into_inner), false)
            }
            Some(timeout) => {
                let woken = self.wakeup.wait_timeout(work, timeout);
                let (woken, result) = woken.unwrap_or_else(PoisonError::into_inner);
                (woken, result.timed_out())
            }
        }
    }

    /// Ends the pause after a failure: the model has answered.
    pub(super) fn mark_available(&self) {
        self.lock_work().is_available = true;
        self.wakeup.notify_all();
    }

    /// Queues texts again that could not be embedded now, unless they are outdated.
    pub(super) fn requeue(&self, server: &ServerId, texts: Vec<(u64, EmbeddingText)>) {
        let mut work = self.lock_work();
        if work.current.as_ref() != Some(server) {
            return;
        }
        match work.servers.iter_mut().find(|(other, _)| other == server) {
            Some((_, rest)) => texts.into_iter().rev().for_each(|t| rest.push_front(t)),
            None => work.servers.push_front((server.clone(), texts.into())),
        }
    }

    /// Moves texts to the end of their server's queue, unless they are outdated.
    pub(super) fn requeue_last(&self, server: &ServerId, texts: Vec<(u64, EmbeddingText)>) {
        let mut work = self.lock_work();
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

    fn lock_work(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }
}

fn to_text(text: &str) -> EmbeddingText {
    EmbeddingText {
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

    fn texts(all: &[&str]) -> PendingTexts {
        all.iter().map(|text| (0, to_text(text))).collect()
    }

    fn vector() -> Vector {
        Vector::quantize(&[1.0, 2.0]).unwrap()
    }

    /// The next texts of tools.
    fn next_texts(queue: &EmbeddingQueue) -> (String, Vec<String>, bool) {
        match queue.next_tools(2, NO, Some(NO)) {
            Job::Tools {
                server,
                texts,
                last,
            } => {
                let texts = texts.iter().map(|(_, text)| text.text.to_string());
                (server.to_string(), texts.collect(), last)
            }
            other @ (Job::Request(_) | Job::Idle | Job::End) => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn queries_precede_tools_and_are_cached() {
        let queue = EmbeddingQueue::new(Some(2), UsageCounts::new());
        queue.push_texts(&ServerId::new("a"), texts(&["one", "two", "three"]));
        let query = ["query".to_owned()];
        let request = queue.embed_query(&query, Duration::from_secs(1));
        let answer = async {
            let Job::Request(query) = queue.next_request(None) else {
                panic!("a query waits");
            };
            queue.answer_query(query, vec![vector()]);
        };
        let (vectors, ()) = tokio::join!(request, answer);
        assert_eq!(vectors, Some(vec![vector()]));
        let repeated = queue.embed_query(&query, NO).await;
        assert_eq!(repeated, Some(vec![vector()]), "it is cached");
        let both = ["query".to_owned(), "more".to_owned()];
        let request = queue.embed_query(&both, Duration::from_secs(1));
        let answer = async {
            let Job::Request(query) = queue.next_request(None) else {
                panic!("a query waits");
            };
            let unknown: Vec<_> = query.texts.iter().map(|text| &*text.text).collect();
            assert_eq!(unknown, ["more"], "cached texts are not embedded again");
            queue.answer_query(query, vec![Vector::quantize(&[5.0, 1.0]).unwrap()]);
        };
        let (vectors, ()) = tokio::join!(request, answer);
        assert_eq!(vectors.map(|all| all[0].clone()), Some(vector()));
        let other = ["other".to_owned()];
        let late = queue.embed_query(&other, Duration::from_secs(1)).await;
        assert_eq!(late, None);
        let next = queue.next_request(Some(NO));
        assert!(matches!(next, Job::Idle), "an abandoned query is dropped");
        assert_eq!(next_texts(&queue).1, ["one", "two"]);
    }

    #[test]
    fn outdated_texts_are_not_embedded() {
        let queue = EmbeddingQueue::new(None, UsageCounts::new());
        let (a, b) = (ServerId::new("a"), ServerId::new("b"));
        queue.push_texts(&a, texts(&["old one", "old two", "old three"]));
        queue.push_texts(&b, texts(&["other"]));
        assert_eq!(next_texts(&queue).1, ["old one", "old two"]);
        queue.requeue(&a, texts(&["old one"]).into());
        assert_eq!(queue.pending_texts(), 3, "they are retried");
        assert_eq!(next_texts(&queue).1, ["old one", "old three"]);
        queue.push_texts(&a, texts(&["new"]));
        queue.requeue(&a, texts(&["old one"]).into());
        assert_eq!(next_texts(&queue), ("b".into(), vec!["other".into()], true));
        queue.forget(&a);
        assert_eq!(queue.pending_texts(), 0);
        assert!(matches!(queue.next_tools(2, NO, Some(NO)), Job::Idle));
        queue.push_texts(&a, texts(&["x"]));
        queue.switch_off();
        queue.push_texts(&a, texts(&["x"]));
        assert_eq!(queue.pending_texts(), 0);
        queue.close();
        assert!(matches!(queue.next_tools(2, NO, None), Job::End));
        assert!(matches!(queue.next_request(None), Job::End));
    }

    #[test]
    fn after_a_failure_texts_wait_and_queries_do_not() {
        let queue = EmbeddingQueue::new(None, UsageCounts::new());
        queue.push_texts(&ServerId::new("a"), texts(&["one"]));
        let (reply, _answer) = oneshot::channel();
        let query = PendingQuery {
            texts: Vec::new(),
            reply,
        };
        queue.lock_work().requests.push_back(query);
        let pause = Duration::from_millis(20);
        assert!(matches!(queue.next_request(None), Job::Request(_)));
        let began = mgp_runtime::time::monotonic_now();
        assert!(matches!(
            queue.next_tools(1, pause, None),
            Job::Tools { .. }
        ));
        assert!(mgp_runtime::time::monotonic_now().duration_since(began) >= pause);
        queue.push_texts(&ServerId::new("a"), texts(&["one"]));
        queue.mark_available();
        let long = Duration::from_secs(3_600);
        assert!(matches!(queue.next_tools(1, long, None), Job::Tools { .. }));
    }

    /// At the first start with many tools, the called ones are found by meaning first.
    #[test]
    fn texts_of_the_most_called_tools_come_first() {
        let queue = EmbeddingQueue::new(None, UsageCounts::new());
        let ranked = |all: &[(u64, &str)]| -> PendingTexts {
            all.iter()
                .map(|(uses, text)| (*uses, to_text(text)))
                .collect()
        };
        queue.push_texts(
            &ServerId::new("a"),
            ranked(&[(3, "a3"), (1, "a1"), (0, "a0")]),
        );
        queue.push_texts(
            &ServerId::new("b"),
            ranked(&[(9, "b9"), (2, "b2"), (0, "b0")]),
        );
        let order: Vec<String> = std::iter::from_fn(|| match queue.next_tools(1, NO, Some(NO)) {
            Job::Tools { texts, .. } => Some(texts[0].1.text.to_string()),
            Job::Request(_) | Job::Idle | Job::End => None,
        })
        .collect();
        assert_eq!(order, ["b9", "a3", "b2", "a1", "a0", "b0"]);
    }
}
