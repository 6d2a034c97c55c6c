//! `tasks/*`: tasks of servers under names that only their clients can use, and tasks the kernel made
//! of calls to servers that make none.

mod bridged;
mod legacy;

use mgp_engine::callers::tasks::{Maker, NamedTask, TaskRef};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::{self, tasks as words};
use mgp_protocol::mention::may_mention;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use serde_json::value::RawValue;

use super::access::Admitted;
use super::forward::{Mirrored, Outgoing, along, is_untaken};
use super::tracing::may_be_of_mgp;
use super::{Relay, required, text};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_callers::tasks::LongCall;
use mgp_servers::link::Link;

pub(super) use bridged::{wants_task, with_related, without_task};
pub(super) use legacy::{only_as_task, through_task};

/// What a client must declare to be given tasks.
const EXTENSION: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// Bytes of a server's own name for a task; longer ones cannot be sealed.
const MAX_ID: usize = 1024;

/// The answer to what is only taken note of.
const TAKEN: &[u8] = br#"{"resultType":"complete"}"#;

impl Relay {
    /// `tasks/get` of the extension.
    ///
    /// # Errors
    /// [`Refusal::BadParams`] when the task is unknown, is another client's, or is forgotten.
    pub async fn get_task(&self, request: &Request) -> Outcome {
        let words::Get(about) = mcp::read(Some(required(request)?))?;
        let named = self.meant(request, about.task_id)?;
        match named.task.maker {
            Maker::Kernel { boot, number } => {
                let shown = self.tasks.get((boot, number));
                shown.ok_or_else(|| unknown(about.task_id))
            }
            Maker::Modern { .. } | Maker::Legacy { .. } => {
                self.pass_task(request, &named, about.task_id).await
            }
        }
    }

    /// `tasks/update` of the extension.
    ///
    /// # Errors
    /// As [`Self::get_task`].
    pub async fn update_task(&self, request: &Request) -> Outcome {
        let update: words::Update<'_> = mcp::read(Some(required(request)?))?;
        let named = self.meant(request, update.task_id)?;
        match named.task.maker {
            Maker::Kernel { boot, number } => {
                let responses = update.input_responses.map_or("{}", RawValue::get);
                match self.tasks.update((boot, number), responses) {
                    true => Ok(TAKEN.into()),
                    false => Err(unknown(update.task_id)),
                }
            }
            Maker::Modern { .. } | Maker::Legacy { .. } => {
                self.pass_task(request, &named, update.task_id).await
            }
        }
    }

    /// `tasks/cancel` of the extension.
    ///
    /// # Errors
    /// As [`Self::get_task`].
    pub async fn cancel_task(&self, request: &Request) -> Outcome {
        let words::Cancel(about) = mcp::read(Some(required(request)?))?;
        let named = self.meant(request, about.task_id)?;
        match named.task.maker {
            Maker::Kernel { boot, number } => match self.tasks.cancel((boot, number)).await {
                true => Ok(TAKEN.into()),
                false => Err(unknown(about.task_id)),
            },
            Maker::Modern { .. } | Maker::Legacy { .. } => {
                self.pass_task(request, &named, about.task_id).await
            }
        }
    }

    /// Which task a stateless client means.
    fn meant(&self, request: &Request, id: &RawValue) -> Result<NamedTask, Refusal> {
        knows_tasks(request)?;
        self.task(&request.caller, &text(id, "taskId")?)
            .ok_or_else(|| unknown(id))
    }

    /// The task a client was given under this name; none of a tool that is closed to it by now.
    pub(super) fn task(&self, caller: &Caller, id: &str) -> Option<NamedTask> {
        let known = self.tasks.find(caller, id);
        known.filter(|named| self.about(caller, named, Refusal::Cancelled).is_ok())
    }

    /// Leave to ask a server about a task: whoever may call the tool has it.
    fn about<'a>(
        &'a self,
        caller: &Caller,
        named: &'a NamedTask,
        unknown: Refusal,
    ) -> Result<Admitted<'a>, Refusal> {
        self.admit(caller, &named.task.server, Some(&named.tool), unknown)
    }

    /// Asks the server that made a task, under its own name for it; over its next connection, when
    /// this one is just being given up.
    async fn pass_task(&self, request: &Request, named: &NamedTask, id: &RawValue) -> Outcome {
        match self.pass_task_once(request, named, id).await {
            Err(refusal) if is_untaken(&refusal) => self.pass_task_once(request, named, id).await,
            outcome => outcome,
        }
    }

    async fn pass_task_once(&self, request: &Request, named: &NamedTask, id: &RawValue) -> Outcome {
        let leave = self.about(&request.caller, named, unknown(id))?;
        let task = &named.task;
        let (Maker::Modern { task: own } | Maker::Legacy { task: own }) = &task.maker else {
            return Err(unknown(id));
        };
        let link = self.link(request, &task.server).await?;
        if link.peer_in(Era::Modern).is_none() {
            return Err(unknown(id));
        }
        link.may_answer(own, required(request)?)?;
        let own_json = quoted(own);
        let params = required(request)?;
        let outgoing = Outgoing {
            tool: None,
            leave: Some(&leave),
            server: &task.server,
            method: &request.method,
            params,
            of_mgp: may_be_of_mgp(params),
            edit: (id.get(), &own_json),
            token: None,
            mirrored: Mirrored::named(own),
        };
        let result = along(request, &link, outgoing, Era::Modern).await?;
        let shown = std::str::from_utf8(&result).ok().and_then(|result| {
            let named = member(result, "taskId")?;
            let mut splice = Splice::new(result);
            splice.replace(named, id.get());
            Some(splice.finish().into_owned())
        });
        Ok(shown.map_or(result, Into::into))
    }

    /// The answer to a call that became a task of its server, under the name its client can use;
    /// `None` for every other answer.
    ///
    /// # Errors
    /// [`Refusal::Broken`] when the server's own name for it is too long.
    pub(super) fn announced(
        &self,
        request: &Request,
        tool: &CatalogTool,
        result: &[u8],
    ) -> Result<Option<bytes::Bytes>, Refusal> {
        if !may_mention(result, "\"taskId\"") {
            return Ok(None);
        }
        if request.caller.version.era() == Era::Legacy {
            let result = std::str::from_utf8(result).unwrap_or_default();
            return Ok(self.created(request, tool, result)?.map(Into::into));
        }
        let Some((result, own)) = std::str::from_utf8(result).ok().and_then(own_id) else {
            return Ok(None);
        };
        let server = &tool.server;
        let task = serde_json::from_str::<String>(own).unwrap_or_default();
        if task.len() > MAX_ID {
            return Err(Refusal::Broken(format!(
                "server {server} names a task with more than {MAX_ID} bytes"
            )));
        }
        let task = named(tool, Maker::Modern { task });
        let mut splice = Splice::new(result);
        splice.replace(own, quoted(&self.tasks.name(&request.caller, &task)));
        Ok(Some(splice.finish().into_owned().into()))
    }

    /// A tool call may become a task of the kernel where its client knows tasks and its server makes
    /// none.
    pub(super) fn may_take_long(&self, request: &Request, link: &Link, tool: Option<&CatalogTool>) {
        let (Some(rounds), Some(tool)) = (request.exchange.rounds(), tool) else {
            return;
        };
        let limits = &link.limits;
        if rounds.capabilities().tasks && !limits.task_after.is_zero() && !makes_tasks(link) {
            rounds.may_take_long(LongCall {
                server: link.server.clone(),
                tool: (*tool.own_name).into(),
                after: limits.task_after,
                ttl: limits.task_ttl,
            });
        }
    }

    /// True when a client may be given tasks.
    pub(super) fn offers_tasks(&self, caller: &Caller) -> bool {
        self.links(caller)
            .iter()
            .any(|link| makes_tasks(link) || !link.limits.task_after.is_zero())
    }
}

/// Tasks are only for clients that declare the extension.
pub(super) fn knows_tasks(request: &Request) -> Result<(), Refusal> {
    if request.caller.capabilities.tasks {
        return Ok(());
    }
    let required = RawValue::from_string(EXTENSION.into()).expect("a literal is JSON");
    Err(Refusal::MissingCapability { required })
}

/// True for a server that decides itself which calls become tasks.
fn makes_tasks(link: &Link) -> bool {
    link.peer_in(Era::Modern)
        .is_some_and(|peer| peer.capabilities.tasks_extension)
}

/// A result that announces a task, and the server's own name in it.
fn own_id(result: &str) -> Option<(&str, &str)> {
    let kind = serde_json::from_str::<String>(member(result, "resultType")?);
    let announces = kind.is_ok_and(|kind| kind == "task");
    let own = member(result, "taskId").filter(|_| announces)?;
    Some((result, own))
}

/// A task that a server made of a call of a tool.
fn named(tool: &CatalogTool, maker: Maker) -> NamedTask {
    NamedTask {
        task: TaskRef {
            server: tool.server.clone(),
            maker,
        },
        tool: (*tool.own_name).into(),
    }
}

/// The same words for all, so that nothing is learned by trying.
fn unknown(id: &RawValue) -> Refusal {
    let id = serde_json::from_str::<String>(id.get()).unwrap_or_default();
    let id: String = id.chars().take(64).collect();
    Refusal::BadParams(format!(
        "unknown task {id:?}: it was not given to this client, or is forgotten"
    ))
}

/// What `server/discover` says of tasks.
pub(super) fn with_tasks(capabilities: &str, offered: bool) -> String {
    let mut splice = Splice::new(capabilities);
    if offered {
        let extensions = member(EXTENSION, "extensions").unwrap_or("{}");
        splice.insert_member(capabilities, "extensions", extensions);
    }
    splice.finish().into_owned()
}
