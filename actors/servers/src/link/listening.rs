//! Events of a modern server: one standing `subscriptions/listen`, replaced when other events are wanted
//! and reopened when it ends while the connection lives.

mod of_agents;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_engine::callers::request_ids::RequestIds;
use mgp_engine::servers::supervision::pace::ReopenPace;
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::meta::SUBSCRIPTION_ID;
use mgp_protocol::mcp::subscriptions::{Acknowledged, Filter, Listen};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{member, quoted};
use tokio::sync::{Semaphore, oneshot, watch};

use self::of_agents::ListensOfAgents;
use super::calls::Forget;
use super::{InFlight, Link, LinkEvent, List, MirroredHeaders, Wire, envelope};
use crate::link::Alongside;
use mgp_callers::exchange::{Exchange, ReplyPath};
use mgp_callers::request::Outcome;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;

/// Listens open at once: the one in force, its successor, and those being closed. A further change waits
/// until one of these is gone.
pub(super) const MAX_LISTENS: usize = 16;

/// Changes that come this close together are sent as one listen.
const GATHER: Duration = Duration::from_millis(10);

/// How long a replaced listen stays open: over HTTP, events sent on it may still be on their way. An
/// event sent on both within this time is delivered twice.
const LINGER: Duration = Duration::from_millis(50);

/// How long a server may take to acknowledge a listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the start of a server waits for that; a change missed then is found out later.
const AT_START: Duration = Duration::from_secs(2);

/// Wait before a refused listen is tried again.
const REFUSED: Duration = Duration::from_secs(60);

/// First and longest wait before an ended listen is reopened.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The listening of one connection.
#[derive(Debug)]
pub(super) struct Listening {
    wanted: watch::Sender<WantedNews>,
    heard: watch::Sender<HeardNews>,
    /// The latest acknowledged listen, and the events it covers.
    acknowledged: watch::Sender<(u64, Filter)>,
    /// Of a server of another node.
    of_agents: ListensOfAgents,
    over: watch::Sender<bool>,
    places: Arc<Semaphore>,
}

/// The events agents want. Limited by the table of subscriptions.
#[derive(Debug, Clone, Default)]
struct WantedNews {
    uris: BTreeSet<String>,
    /// Tasks of the server, with the number of clients that listen for each; limited by how many a
    /// client may name and by the number of clients.
    tasks: BTreeMap<String, usize>,
    /// Counts changes.
    wish: u64,
}

/// What the server answered to the changes up to this one.
#[derive(Debug, Clone, Default)]
struct HeardNews {
    wish: u64,
    outcome: Option<Result<Arc<BTreeSet<String>>, Refusal>>,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            wanted: watch::Sender::default(),
            heard: watch::Sender::default(),
            acknowledged: watch::Sender::default(),
            of_agents: ListensOfAgents::default(),
            over: watch::Sender::default(),
            places: Arc::new(Semaphore::new(MAX_LISTENS)),
        }
    }
}

impl Listening {
    /// The connection is over.
    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    /// The server acknowledged a listen; `params` as sent.
    pub(super) fn acknowledged(&self, ids: &RequestIds, params: Option<&str>) {
        let Ok(said) = mcp::read::<Acknowledged<'_>>(params) else {
            return;
        };
        if let Some(id) = said.meta.and_then(|meta| listen_of(ids, meta.get())) {
            self.acknowledged.send_replace((id, said.notifications));
        }
    }

    /// True for a message of a listen that has been replaced.
    pub(super) fn is_superseded(&self, ids: &RequestIds, params: &str) -> bool {
        let of = member(params, "_meta").and_then(|meta| listen_of(ids, meta));
        of.is_some_and(|of| of < self.acknowledged.borrow().0)
    }

    /// Changes what is wanted; returns the number of the change.
    fn wish(&self, change: impl FnOnce(&mut WantedNews)) -> u64 {
        let mut number = 0;
        self.wanted.send_modify(|wanted| {
            change(wanted);
            wanted.wish += 1;
            number = wanted.wish;
        });
        number
    }

    fn tell(&self, wish: u64, outcome: Result<Arc<BTreeSet<String>>, Refusal>) {
        let outcome = Some(outcome);
        self.heard.send_replace(HeardNews { wish, outcome });
    }
}

impl Link {
    /// Keeps a listen open to a modern server until the connection is over. From the start it covers
    /// changes of the lists.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.peer_in(Era::Modern).is_some() {
            drop(self.tends("listening.listen", keep(self.clone())).detach());
        }
        if matches!(self.wire, Wire::Node(_)) {
            let keep = of_agents::keep(self.clone());
            drop(self.tends("listening.of_agents", keep).detach());
        }
    }

    /// True for a server that tells its news to a listen, false for one that is asked for each kind.
    #[must_use]
    pub fn is_listened_to(&self) -> bool {
        self.peer_in(Era::Modern).is_some()
    }

    /// Resolves when the connection is over.
    pub async fn over(&self) {
        let mut over = self.listening.over.subscribe();
        let _ = over.wait_for(|over| *over).await;
    }

    /// Resolves when the server has acknowledged or refused a listen.
    pub(crate) async fn listens(&self) {
        if self.peer_in(Era::Modern).is_none() {
            return;
        }
        let mut heard = self.listening.heard.subscribe();
        let first = heard.wait_for(|heard| heard.outcome.is_some());
        let _ = tokio::time::timeout(AT_START, first).await;
    }

    /// Follows a resource of a modern server; the returned future resolves when the server agreed, or
    /// with the reason why it refused.
    pub fn follow(
        self: &Arc<Self>,
        uri: &str,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + use<> {
        let (link, uri) = (self.clone(), uri.to_owned());
        let mut heard = self.listening.heard.subscribe();
        let wish = self.listening.wish(|wanted| {
            wanted.uris.insert(uri.clone());
        });
        let mut over = self.listening.over.subscribe();
        async move {
            let told = heard.wait_for(|heard| heard.wish >= wish);
            let outcome = tokio::select! {
                told = told => told.ok().and_then(|heard| heard.outcome.clone()),
                _ = over.wait_for(|over| *over) => None,
            };
            let refusal = match outcome {
                Some(Ok(agreed)) if agreed.contains(&uri) => return Ok(()),
                Some(Ok(_)) => Refusal::BadRequest(format!(
                    "server {} does not tell when {uri} changes",
                    link.server
                )),
                Some(Err(refusal)) => refusal,
                None => return Err(link.lost("its connection was closed")),
            };
            // What the server refused is not requested again.
            if refusal.is_answer() || matches!(refusal, Refusal::BadRequest(_)) {
                link.unfollow(&uri);
            }
            Err(refusal)
        }
    }

    /// Ends following a resource.
    pub fn unfollow(&self, uri: &str) {
        self.listening.wish(|wanted| {
            wanted.uris.remove(uri);
        });
    }

    /// Follows a task of this server for one more client.
    pub fn follow_task(&self, own: &str) {
        if matches!(self.wire, Wire::Node(_)) {
            return self.listening.of_agents.follow(own);
        }
        self.listening.wish(|wanted| {
            *wanted.tasks.entry(own.to_owned()).or_default() += 1;
        });
    }

    /// Ends that for one client.
    pub fn unfollow_task(&self, own: &str) {
        if matches!(self.wire, Wire::Node(_)) {
            return self.listening.of_agents.unfollow(own);
        }
        self.listening.wish(|wanted| {
            let left = wanted.tasks.get_mut(own).map(|listeners| {
                *listeners -= 1;
                *listeners
            });
            if left == Some(0) {
                wanted.tasks.remove(own);
            }
        });
    }

    /// Resolves when the server has answered all changes so far.
    pub async fn agrees(&self) {
        let wish = self.listening.wanted.borrow().wish;
        let mut heard = self.listening.heard.subscribe();
        let mut over = self.listening.over.subscribe();
        let answered = async {
            let _ = heard.wait_for(|heard| heard.wish >= wish).await;
            self.listening.of_agents.answered().await;
        };
        tokio::select! {
            () = answered => {}
            _ = over.wait_for(|over| *over) => {}
            () = tokio::time::sleep(PATIENCE) => {}
        }
    }

    fn filter(&self, wanted: &WantedNews) -> Filter {
        let peer = self.peer_in(Era::Modern);
        let raw = peer.map_or("{}", |peer| &*peer.raw_capabilities);
        let changes = |list: &str| {
            member(raw, list).and_then(|can| member(can, "listChanged")) == Some("true")
        };
        Filter {
            tools_list_changed: changes("tools"),
            prompts_list_changed: changes("prompts"),
            resources_list_changed: changes("resources"),
            resource_subscriptions: wanted.uris.iter().cloned().collect(),
            task_ids: match peer.is_some_and(|peer| peer.capabilities.tasks_extension) {
                true => wanted.tasks.keys().cloned().collect(),
                false => Vec::new(),
            },
        }
    }
}

/// The number of the listen a message belongs to; later ones have higher numbers.
fn listen_of(ids: &RequestIds, meta: &str) -> Option<u64> {
    let said = RequestId::from_answer(member(meta, SUBSCRIPTION_ID)?)?;
    ids.number(said.as_number()?)
}

/// One open listen; dropping it ends it at the server too.
#[derive(Debug)]
struct Standing {
    id: u64,
    task: SupervisedTask<Outcome>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Standing {
    async fn open(link: &Arc<Link>, filter: &Filter) -> Result<Self, Refusal> {
        let place = link.listening.places.clone().acquire_owned().await;
        let (answer, settled) = oneshot::channel();
        let in_flight = InFlight {
            answer,
            exchange: Exchange::new(ReplyPath::Nowhere),
            caller: None,
            token: None,
            stream: None,
            reports: false,
            era: Era::Modern,
            listens: true,
            channel: None,
            touched: AtomicU64::new(0),
        };
        let id = link.insert(in_flight)?;
        let filter = serde_json::to_string(filter).expect("a filter is plain data");
        let params = format!(r#"{{"notifications":{filter}}}"#);
        let params = envelope::wrap(Some(&params), &link.own_meta);
        let frame = jsonrpc::request(
            &link.ids.shown(id).to_string(),
            Listen::METHOD,
            Some(&params),
        );
        let link = link.clone();
        let task = task::supervised("listening.request", async move {
            let _place = place;
            let _forget = Forget { link: &link, id };
            let mirror = MirroredHeaders {
                method: Listen::METHOD,
                name: None,
                params: &[],
            };
            tokio::select! {
                biased;
                outcome = settled => outcome.unwrap_or_else(|_| Err(link.lost("it was closed"))),
                never = link.wire.carry(&link, id, frame.into(), Era::Modern, mirror, Alongside::default()) => match never {},
            }
        });
        Ok(Self { id, task })
    }

    /// Resolves when the server has acknowledged it, with the events it agreed to.
    ///
    /// # Errors
    /// Why it was refused.
    async fn acknowledged(&mut self, link: &Link) -> Result<Filter, Refusal> {
        let mut acknowledged = link.listening.acknowledged.subscribe();
        let id = self.id;
        let said = acknowledged.wait_for(|(acknowledged, _)| *acknowledged == id);
        tokio::select! {
            said = tokio::time::timeout(PATIENCE, said) => match said {
                Ok(Ok(said)) => Ok(said.1.clone()),
                Ok(Err(_)) | Err(_) => Err(link.lost("a listen was not acknowledged")),
            },
            ended = self.ended(link) => Err(ended),
        }
    }

    /// Resolves when the server ends it, with the reason.
    async fn ended(&mut self, link: &Link) -> Refusal {
        match (&mut self.task).await {
            Ok(Ok(_)) | Err(_) => link.lost("it ended a listen"),
            Ok(Err(refusal)) => refusal,
        }
    }

    fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Closes it after a while, because it was replaced.
    fn retire(self) {
        task::detached("listening.former", async move {
            tokio::time::sleep(LINGER).await;
            drop(self);
        });
    }
}

/// The task that keeps listening; it ends with the connection.
async fn keep(link: Arc<Link>) {
    let mut over = link.listening.over.subscribe();
    tokio::select! {
        biased;
        _ = over.wait_for(|over| *over) => {}
        () = keep_on(&link) => {}
    }
}

async fn keep_on(link: &Arc<Link>) {
    let mut wanted = link.listening.wanted.subscribe();
    let mut current: Option<Standing> = None;
    let (mut wait, mut pace) = (AGAIN.0, ReopenPace::default());
    let mut gap = false;
    loop {
        let now = wanted.borrow_and_update().clone();
        let (filter, wish) = (link.filter(&now), now.wish);
        if filter == Filter::default() {
            current = None;
            link.listening.tell(wish, Ok(Arc::default()));
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        }
        match begin(link, &filter).await {
            Ok((standing, agreed)) => {
                wait = AGAIN.0;
                if std::mem::take(&mut gap) {
                    changed_meanwhile(link, &agreed);
                }
                let uris = agreed.resource_subscriptions.into_iter().collect();
                link.listening.tell(wish, Ok(Arc::new(uris)));
                if let Some(before) = current.replace(standing) {
                    before.retire();
                }
            }
            Err(refusal) => {
                note(link, &refusal);
                gap |= current.as_ref().is_none_or(Standing::is_over);
                let refused = refusal.is_answer();
                link.listening.tell(wish, Err(refusal));
                pause(&mut wait).await;
                if refused {
                    let _ = tokio::time::timeout(REFUSED, wanted.changed()).await;
                }
                continue;
            }
        }
        let Some(standing) = &mut current else {
            continue;
        };
        let opened = moment();
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(GATHER).await;
            }
            ended = standing.ended(link) => {
                note(link, &ended);
                (current, gap) = (None, true);
                tokio::time::sleep(pace.wait(moment().since(opened), None)).await;
            }
        }
    }
}

/// Only noted: it is reopened by itself.
fn note(link: &Link, why: &Refusal) {
    let why = if let Refusal::Lost { reason, .. } = why {
        reason.clone()
    } else {
        why.to_string()
    };
    link.log.note(&format!("{}: {why}", Listen::METHOD));
}

async fn begin(link: &Arc<Link>, filter: &Filter) -> Result<(Standing, Filter), Refusal> {
    let mut standing = Standing::open(link, filter).await?;
    let agreed = standing.acknowledged(link).await?;
    Ok((standing, agreed))
}

async fn pause(wait: &mut Duration) {
    tokio::time::sleep(*wait).await;
    *wait = (*wait * 2).min(AGAIN.1);
}

/// The lists may have changed while no listen was open, so they are fetched again. What is followed at another node may
/// have changed while that restarted, so it is read again.
fn changed_meanwhile(link: &Link, agreed: &Filter) {
    for (may, list) in [
        (agreed.tools_list_changed, List::Tools),
        (agreed.prompts_list_changed, List::Prompts),
        (agreed.resources_list_changed, List::Resources),
    ] {
        if may {
            link.tells(LinkEvent::ListChanged(list));
        }
    }
    let at_node = matches!(link.wire(), Wire::Node(_));
    for uri in agreed.resource_subscriptions.iter().filter(|_| at_node) {
        let params = format!(r#"{{"uri":{}}}"#, quoted(uri));
        let uri = uri.clone();
        link.tells(LinkEvent::ResourceUpdated { uri, params });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::link::scripted::Scripted;

    const TOOLS: &str = r#"{"tools":{"listChanged":true},"prompts":{},"resources":{}}"#;

    fn acknowledge(it: &Scripted, listen: &Value, notifications: &Value) {
        it.say(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {SUBSCRIPTION_ID: listen["id"]}, "notifications": notifications},
        }));
    }

    async fn next_listen(it: &mut Scripted) -> (Value, Value) {
        let listen = it.next().await;
        assert_eq!(listen["method"], "subscriptions/listen");
        let version = &listen["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(*version, "2026-07-28");
        let wanted = listen["params"]["notifications"].clone();
        (listen, wanted)
    }

    fn updated(it: &Scripted, listen: &Value, uri: &str) {
        it.say(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"_meta": {SUBSCRIPTION_ID: listen["id"]}, "uri": uri},
        }));
    }

    /// A change opens another listen; the old one is closed only when the new one is in force, and an
    /// event sent on both is delivered once.
    #[tokio::test]
    async fn a_wish_leaves_no_gap() {
        let mut it = Scripted::modern(TOOLS);
        it.link.listen();
        let (first, wanted) = next_listen(&mut it).await;
        assert_eq!(wanted, json!({"toolsListChanged": true}));
        acknowledge(&it, &first, &wanted);
        it.link.listens().await;
        let mut granted = Box::pin(it.link.follow("a:b"));
        let (second, wanted) = next_listen(&mut it).await;
        let all = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:b"]});
        assert_eq!(wanted, all);
        tokio::select! {
            biased;
            granted = &mut granted => panic!("{granted:?} before it was acknowledged"),
            () = std::future::ready(()) => {}
        }
        updated(&it, &first, "a:b");
        acknowledge(&it, &second, &wanted);
        granted.await.unwrap();
        updated(&it, &first, "a:b");
        updated(&it, &second, "a:b");
        let heard = [r#"a:b {"uri":"a:b"}"#; 2];
        assert_eq!(*it.heard.0.lock().unwrap(), heard);
        let cancelled = it.next().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], first["id"]);
    }

    /// A listen that ends is reopened, and lists that may have changed meanwhile are fetched.
    #[tokio::test]
    async fn a_listen_that_ends_is_opened_again() {
        let mut it = Scripted::modern(TOOLS);
        it.link.listen();
        let (first, wanted) = next_listen(&mut it).await;
        acknowledge(&it, &first, &wanted);
        it.link.listens().await;
        it.answer(&first, "result", &json!({"resultType": "complete"}));
        let (second, again) = next_listen(&mut it).await;
        assert_eq!(again, wanted);
        acknowledge(&it, &second, &wanted);
        let granted = tokio::spawn(it.link.follow("a:b"));
        let (third, wanted) = next_listen(&mut it).await;
        acknowledge(&it, &third, &wanted);
        granted.await.unwrap().unwrap();
        assert_eq!(*it.heard.0.lock().unwrap(), ["Tools"]);
    }

    /// A listen that its server ends at once is opened ever more rarely.
    #[tokio::test]
    async fn listens_that_end_at_once_are_opened_ever_more_rarely() {
        let mut it = Scripted::modern(TOOLS);
        it.link.listen();
        let begun = moment();
        for _ in 0..6 {
            let (listen, wanted) = next_listen(&mut it).await;
            acknowledge(&it, &listen, &wanted);
            it.link.listens().await;
            it.answer(&listen, "result", &json!({"resultType": "complete"}));
        }
        let took = moment().since(begun);
        assert!(took > Duration::from_millis(1500), "{took:?}");
    }

    /// What a server refused is not promised to clients, and not requested again.
    #[tokio::test]
    async fn what_is_not_acknowledged_is_refused() {
        let mut it = Scripted::modern(r#"{"resources":{}}"#);
        it.link.listen();
        it.link.listens().await;
        let granted = tokio::spawn(it.link.follow("a:b"));
        let (listen, _) = next_listen(&mut it).await;
        acknowledge(&it, &listen, &json!({}));
        let refusal = granted.await.unwrap().unwrap_err();
        assert!(refusal.to_string().contains("a:b"), "{refusal}");
        let cancelled = it.next().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(it.link.in_flight(), 0);
    }

    /// A listen is no call: a connection with nothing else under way is idle.
    #[tokio::test]
    async fn a_listen_is_no_call() {
        let mut it = Scripted::modern(TOOLS);
        it.link.listen();
        let (listen, wanted) = next_listen(&mut it).await;
        acknowledge(&it, &listen, &wanted);
        it.link.listens().await;
        assert_eq!(it.link.in_flight(), 0);
        assert!(it.link.drain(Duration::from_secs(5)).await);
        it.link.lose("it was stopped");
        let lost = it.link.follow("a:b").await.unwrap_err();
        assert!(matches!(lost, Refusal::Lost { .. }), "{lost}");
    }
}
