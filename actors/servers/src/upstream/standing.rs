//! What a server is told, and what is known of it, beside requests. A server that is not connected is told
//! nothing: it learns all of it when it connects.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::callers::tasks::{Maker, TaskStatus};
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{member, quoted};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Upstream;
use crate::levels;
use crate::link::{Link, Wire};
use mgp_callers::directory::Directory;
use mgp_callers::request::{Caller, Request};

/// Pages fetched of one server's list of tasks, so that an endless list ends.
const MAX_PAGES: usize = 16;

/// How long a server may take to say how a task stands: a person waits for it.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// So many agents with roots, and a server that they share gets none of them.
const TOO_MANY_ROOTS: usize = 3;

/// What a server declares of the tasks of 2025-11-25.
#[derive(Debug)]
pub struct LegacyTasks {
    /// Its capability, as JSON text.
    pub capability: Option<Box<str>>,
    /// It lists its tasks.
    pub listed: bool,
}

/// Pages of `tasks/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskPage<'a> {
    #[serde(borrow)]
    tasks: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// A subscription to a task at its server, until dropped. Weak: a client may listen for days, which must
/// not keep an old connection alive.
#[derive(Debug)]
pub struct FollowedTask {
    link: Weak<Link>,
    own: String,
}

impl Upstream<'_> {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &ServerId {
        &self.id
    }

    /// Starts it for this request, where it is not running.
    ///
    /// # Errors
    /// As [`Self::send`], before anything is sent.
    pub async fn start(&self, request: &Request) -> Result<(), Refusal> {
        self.link(request).await.map(drop)
    }

    /// How long a call with its retries may take, where it was agreed that the server says what may be tried
    /// again (MGP §14.6).
    #[must_use]
    pub fn retry_time(&self) -> Option<Duration> {
        let link = self.shared()?;
        // The kernel of another node judges its server's errors itself, and has tried again by then.
        if matches!(link.wire(), Wire::Node(_)) {
            return None;
        }
        let agreed = link.mgp().says_codes();
        agreed.then_some(link.limits.call_timeout_max)
    }

    /// Whether a request to it repeats parts of its body in headers, which it may find to differ from the body
    /// before it does anything.
    #[must_use]
    pub fn reads_headers(&self) -> bool {
        let link = self.shared();
        link.is_some_and(|link| matches!(link.wire(), Wire::Http(_)))
    }

    /// Calls to it may become tasks of a stateless client: it makes them itself, or the kernel does.
    #[must_use]
    pub fn gives_tasks(&self) -> bool {
        let link = self.shared();
        link.is_some_and(|link| link.makes_tasks() || !link.limits.task_after.is_zero())
    }

    /// Calls to it may become tasks of a client of 2025-11-25, though it makes those of the extension.
    #[must_use]
    pub fn bridges_tasks(&self) -> bool {
        self.shared().is_some_and(|link| link.bridges_tasks())
    }

    /// What it declares of the tasks of 2025-11-25; `None` where it has none.
    #[must_use]
    pub fn legacy_tasks(&self) -> Option<LegacyTasks> {
        let link = self.shared()?;
        let peer = link.experiment()?;
        Some(LegacyTasks {
            capability: member(&peer.raw_capabilities, "tasks").map(Into::into),
            listed: peer.capabilities.tasks_list,
        })
    }

    /// Shows each task of its list, of the instance that this caller uses. What cannot be fetched is left
    /// out.
    pub async fn list_legacy_tasks(&self, caller: &Caller, mut show: impl FnMut(&RawValue)) {
        let leaving = self
            .servers
            .load()
            .get(&self.id)
            .and_then(|it| it.leaving());
        for link in leaving.into_iter().chain(self.link_of(caller)) {
            list_tasks(&link, &mut show).await;
        }
    }

    /// How a task of this server stands, by its own id; `None` where it does not say so in time. Nobody knows
    /// whose instance to ask where agents have their own.
    pub async fn task_status(&self, maker: &Maker) -> Option<TaskStatus> {
        let (era, own) = match maker {
            Maker::Modern { task } => (Era::Modern, task),
            Maker::Legacy { task } => (Era::Legacy, task),
            Maker::Kernel { .. } => return None,
        };
        let link = self.leaving(own).or_else(|| self.shared())?;
        link.peer_in(era)?;
        let params = format!(r#"{{"taskId":{}}}"#, quoted(own));
        let asked = link.ask_in(era, "tasks/get", Some(&params));
        let answer = tokio::time::timeout(TOLD_WITHIN, asked).await.ok()?.ok()?;
        let status = member(std::str::from_utf8(&answer).ok()?, "status")?;
        TaskStatus::parse(&serde_json::from_str::<String>(status).ok()?)
    }

    /// Follows a task of the extension for a client, by the server's own id. Nothing where it is not
    /// connected.
    #[must_use]
    pub fn follow_task(&self, caller: &Caller, own: &str) -> Option<FollowedTask> {
        let handle = self.servers.load().get(&self.id).cloned()?;
        let link = self.leaving(own).or_else(|| handle.link_of(caller))?;
        link.follow_task(own);
        Some(FollowedTask {
            link: Arc::downgrade(&link),
            own: own.to_owned(),
        })
    }

    /// The roots of this caller changed: it is told, if it asked for roots.
    pub fn roots_changed(&self, caller: &Caller, directory: &Directory) {
        let told = |link: &Arc<Link>| {
            let most = TOO_MANY_ROOTS;
            link.asks_roots() && directory.rooted(&link.server, most, None).len() < most
        };
        if let Some(link) = self.shared().filter(told) {
            link.roots_changed();
        }
        if let Some(link) = self.own(caller).filter(|link| link.asks_roots()) {
            link.roots_changed();
        }
    }

    /// An agent chose its log level: the server is told the most verbose one that any agent wants.
    pub async fn set_level(&self, caller: &Caller, directory: &Directory) {
        let links = [self.shared(), self.own(caller)];
        let links: Vec<_> = links.into_iter().flatten().collect();
        join_all(links.iter().map(|link| levels::tell(directory, link))).await;
    }

    /// The connection that its callers share, if there is one now.
    fn shared(&self) -> Option<Arc<Link>> {
        self.servers.load().get(&self.id)?.link()
    }

    /// The connection of this caller, which is the shared one where it has none for itself.
    fn link_of(&self, caller: &Caller) -> Option<Arc<Link>> {
        let handle = self.servers.load().get(&self.id).cloned()?;
        handle.link()?;
        handle.link_of(caller)
    }

    /// The connection of the instance that this caller has for itself.
    fn own(&self, caller: &Caller) -> Option<Arc<Link>> {
        let shared = self.shared()?;
        let own = self.link_of(caller)?;
        (own.number != shared.number).then_some(own)
    }
}

/// Shows each task of the list of the server behind a connection.
async fn list_tasks(link: &Arc<Link>, mut show: impl FnMut(&RawValue)) {
    if !link
        .experiment()
        .is_some_and(|peer| peer.capabilities.tasks_list)
    {
        return;
    }
    let mut params = None;
    for _ in 0..MAX_PAGES {
        let asked = link.ask_in(Era::Legacy, "tasks/list", params.as_deref());
        let Ok(result) = asked.await else {
            return;
        };
        let Ok(page) = serde_json::from_slice::<TaskPage<'_>>(&result) else {
            return;
        };
        page.tasks.into_iter().for_each(&mut show);
        match page.next_cursor {
            Some(cursor) => params = Some(format!(r#"{{"cursor":{}}}"#, quoted(&cursor))),
            None => return,
        }
    }
}

impl FollowedTask {
    /// Resolves when the server has answered. A client that gets no news of a task can still ask for it.
    pub async fn agreed(&self) {
        if let Some(link) = self.link.upgrade() {
            link.agrees().await;
        }
    }
}

impl Drop for FollowedTask {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            link.unfollow_task(&self.own);
        }
    }
}
