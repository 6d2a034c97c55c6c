//! Methods of the operator: `mgp/kernel/*`, `mgp/servers/*`, `mgp/agents/*` and the like.

mod agents;

mod approvals;

mod cluster_failures;
mod index;
mod lan;
mod mcpl;

mod names;
mod node_keys;
mod nodes;
mod pairing;
mod replicas;
mod server_starts;
mod sets;
mod shares;

pub(crate) mod tools;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_callers::request::{Outcome, Request};
use mgp_callers::{Delivery, Directory};
use mgp_calls::name_sources::NameSources;
use mgp_doors::agent_registry::AgentRegistryHandle;
use mgp_doors::{Broker, Console, Revocation};
use mgp_engine::servers::lifecycle::{LifecycleState, TransitionReason};
use mgp_mcpl::McplHost;
use mgp_policy::{ApprovalsHandle, PermissionsHandle, PinsHandle};
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::Verified;
use mgp_protocol::mgp::kernel::{
    CLIENTS_MAX, KernelStatus, RunningTree, TaskCount, Upgrade, Upgraded,
};
use mgp_protocol::mgp::servers::{self, LogLine, LogLines, Server};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{CountedKind, Reply, task};
use mgp_servers::{
    Logins, ResourceMonitor, ResourceSnapshot, ServerHandle, ServerMsg, ServerTable,
};
use mgp_store::audit::AuditHandle;
use mgp_store::{AuditViews, StorageHealth};
use mgp_sync::Snapshot;
use mgp_tools::PublishedCatalog;
use mgp_tools::registrar::Registrar;
use mgp_tools::search::SearchHandle;
use mgp_transports::log::Author;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::config_source::ConfigSource;
use crate::handover::{self, DEFAULT_WAIT, HandoverOrder, HandoverSlot, WAIT_MAX};
use crate::supervision_tree::TreeHandle;

/// Limit for a request that waits for a server to settle; a start has its own, lower limit.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Faults of the log that are reported; more are read at the command line.
const FAULTS_MAX: usize = 100;
/// Log lines returned by default.
const DEFAULT_LOG_LINES: usize = 100;

#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) servers: Arc<ServerTable>,
    /// The published catalog.
    pub(crate) catalog: Arc<Snapshot<PublishedCatalog>>,
    /// The connected clients.
    pub(crate) directory: Arc<Directory>,
    /// The audit log.
    pub(crate) audit: AuditHandle,
    /// The index of the audit log.
    pub(crate) audit_views: OnceLock<AuditViews>,
    /// Problems with the kernel's files.
    pub(crate) storage_health: StorageHealth,
    /// Pending entries.
    pub(crate) approvals: ApprovalsHandle,
    /// The MCPL servers.
    pub(crate) mcpl: Arc<McplHost>,
    /// Pinned definitions of tools.
    pub(crate) pins: PinsHandle,
    /// Permissions of servers.
    pub(crate) permissions: PermissionsHandle,
    /// The index of all tools.
    pub(crate) search: SearchHandle,
    /// Registered servers.
    pub(crate) registrar: Arc<Registrar>,
    /// The supervision tree.
    pub(crate) tree: TreeHandle,
    /// The logins of servers.
    pub(crate) logins: Arc<Logins>,
    /// Resource usage of servers and of the kernel.
    pub(crate) resource_usage: Arc<ResourceMonitor>,
    /// The folder for persistent state.
    pub(crate) data_dir: PathBuf,
    /// The source of the configuration.
    pub(crate) source: Arc<ConfigSource>,
    /// The agents that have a token.
    pub(crate) agents: AgentRegistryHandle,
    /// Ends what a removed agent has under way.
    pub(crate) revocation: Arc<Revocation>,
    /// Sign-ins at the identity provider.
    pub(crate) broker: Option<Arc<Broker>>,
    /// Sessions of the console.
    pub(crate) console: Arc<Console>,
    /// The cluster as this node sees it.
    pub(crate) cluster: Arc<Cluster>,
    /// Names that users may type.
    pub(crate) name_sources: NameSources,
    /// Shuts the kernel down.
    pub(crate) shutdown: CancellationToken,
    /// What continues after that, if anything.
    pub(crate) handover: Arc<HandoverSlot>,
}

impl Operator {
    /// `mgp/kernel/status`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) async fn status(&self, request: &Request) -> Outcome {
        let usage = self.resource_usage.sample().await;
        let configured = self.source.status();
        let mut clients = self.directory.list_clients(request.caller.connection);
        let connections = clients.len() as u64;
        clients.truncate(CLIENTS_MAX);
        let misspelt = self.unknown_mentions(&configured.mentions);
        let problems = configured.problems.into_iter().chain(misspelt);
        let alive = [
            ("connection", CountedKind::Connection),
            ("session", CountedKind::Session),
            ("listener", CountedKind::Listener),
            ("server", CountedKind::Server),
        ];
        json(&KernelStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_secs: monotonic_now().since_start().as_secs(),
            data_dir: self.data_dir.display().to_string(),
            config_files: configured.files,
            untrusted: configured.untrusted,
            servers_file: configured.servers_file,
            config_problems: problems.collect(),
            restart: configured.pending_restart,
            doors: configured.endpoints,
            connections,
            clients,
            index: self.coverage(),
            actors: BTreeMap::from(alive.map(|(name, kind)| (name.to_owned(), kind.live_count()))),
            failed_upgrade: self.handover.last_failure.clone(),
            troubles: self.file_failures(),
            uses: Some(usage.kernel()),
            servers: self.server_reports(&usage),
        })
    }

    /// Problems with the files of the data folder, including those of the cluster's logs.
    fn file_failures(&self) -> Vec<String> {
        let view = self.cluster.replication.view();
        let shortened = view.loss.iter().map(ToString::to_string);
        self.storage_health
            .failures()
            .into_iter()
            .chain(shortened)
            .collect()
    }

    /// `mgp/kernel/stop`: answered before the kernel shuts down.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) fn stop(&self) -> Outcome {
        self.shutdown.cancel();
        Ok(mgp_calls::empty_result())
    }

    /// `mgp/kernel/upgrade`: answered before the kernel hands over.
    ///
    /// # Errors
    /// The kernel ends with what started it, the program cannot take over, or another one does already.
    pub(crate) async fn upgrade(&self, request: &Request) -> Outcome {
        let upgrade: Upgrade = read(request)?;
        if !self.handover.is_possible {
            let why = "this kernel ends with the command that started it, and cannot be upgraded";
            return Err(Refusal::Forbidden(why.into()));
        }
        let program = PathBuf::from(upgrade.program);
        let wait = upgrade.wait_ms.map_or(DEFAULT_WAIT, Duration::from_millis);
        let checked = handover::check(&program, &self.data_dir, self.handover.listen).await;
        let (program, version) = checked.map_err(Refusal::BadRequest)?;
        let order = HandoverOrder {
            program,
            wait: wait.min(WAIT_MAX),
        };
        self.handover.order(order).map_err(Refusal::BadRequest)?;
        self.shutdown.cancel();
        json(&Upgraded { version })
    }

    /// `mgp/kernel/reload`.
    ///
    /// # Errors
    /// When the tree does not answer.
    pub(crate) async fn reload(&self) -> Outcome {
        let problems = self.tree.reload().await.map_err(internal_error)?;
        json(&json!({ "problems": problems }))
    }

    /// `mgp/kernel/tree`.
    ///
    /// # Errors
    /// When the tree does not answer.
    pub(crate) async fn tree(&self) -> Outcome {
        let count = |count: task::TaskStats| TaskCount {
            running: count.running as u64,
            panicked: count.panicked as u64,
        };
        let tasks = task::task_counts().into_iter();
        json(&RunningTree {
            actors: self.tree.describe().await.map_err(internal_error)?,
            tasks: tasks
                .map(|(name, of)| (name.to_owned(), count(of)))
                .collect(),
        })
    }

    /// `mgp/audit/replay`.
    ///
    /// # Errors
    /// Without a log, or if it cannot be read.
    pub(crate) async fn replay(&self, request: &Request) -> Outcome {
        json(&self.audit.replay(&read(request)?).await?)
    }

    /// `mgp/audit/find`.
    ///
    /// # Errors
    /// Without a log, for an invalid cursor, or with too many concurrent searches.
    pub(crate) async fn find_records(&self, request: &Request) -> Outcome {
        // Opened by the first search: its database takes tens of megabytes, and work for each record.
        let views = || AuditViews::start(&self.data_dir, &self.audit);
        json(
            &self
                .audit_views
                .get_or_init(views)
                .find(read(request)?)
                .await?,
        )
    }

    /// `mgp/audit/last`.
    ///
    /// # Errors
    /// Without a log.
    pub(crate) fn last_record(&self) -> Outcome {
        json(&self.audit.last_record()?)
    }

    /// `mgp/audit/verify`: reads the whole log and reports progress.
    ///
    /// # Errors
    /// Without a log, if it cannot be read or is being read by another request, or when cancelled.
    pub(crate) async fn verify_log(&self, request: &Request) -> Outcome {
        let began = monotonic_now();
        let (report_progress, mut progress) = watch::channel((0, 0));
        let telling = async {
            while progress.changed().await.is_ok() {
                let (read, of) = *progress.borrow_and_update();
                let message = format!("{read} of {of} files");
                server_starts::notify_progress(request, read as u64, Some(of as u64), &message);
            }
            std::future::pending::<()>().await;
        };
        let found = tokio::select! {
            found = self.audit.verify(report_progress) => found?,
            () = telling => return Err(Refusal::Cancelled),
            () = request.call.wait_until_cancelled() => return Err(Refusal::Cancelled),
        };
        let (report, faults) = (&found.report, found.describe_faults());
        let known = report.acknowledged.iter().map(ToString::to_string);
        json(&Verified {
            whole: found.is_intact(),
            records: report.records,
            last: report.head.sequence,
            more: faults.len().saturating_sub(FAULTS_MAX) as u64,
            faults: faults.into_iter().take(FAULTS_MAX).collect(),
            acknowledged: known.take(FAULTS_MAX).collect(),
            took_ms: u64::try_from(monotonic_now().duration_since(began).as_millis())
                .unwrap_or(u64::MAX),
        })
    }

    /// `mgp/audit/acknowledge`.
    ///
    /// # Errors
    /// Without a log, or if it cannot be read or written.
    pub(crate) async fn acknowledge(&self, request: &Request) -> Outcome {
        let params = read(request)?;
        json(&self.audit.acknowledge(&params, &request.trace.id).await?)
    }

    /// `mgp/servers/list`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) async fn list_servers(&self) -> Outcome {
        let usage = self.resource_usage.sample().await;
        let mut servers = self.server_reports(&usage);
        let registrations = self.registrar.registrations.lock().await;
        for server in &mut servers {
            let id = ServerId::new(server.id.clone());
            let record = registrations.servers.get(&id);
            server.registered_by = record.map(|record| record.created_by.clone());
            server.unpinned = self.pins.is_unpinned(&id);
            server.permissions = self.permissions.describe(&id);
        }
        json(&json!({ "servers": servers }))
    }

    /// `mgp/servers/stop`: answered when the server has stopped.
    ///
    /// # Errors
    /// Unknown server.
    pub(crate) async fn stop_server(&self, request: &Request) -> Outcome {
        let stop: servers::Stop = read(request)?;
        let handle = self.find_server(&stop.id)?;
        let (reply, stopped) = Reply::new();
        send_to_server(
            &handle,
            ServerMsg::Stop(TransitionReason::OperatorRequest, reply),
        )?;
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, stopped).await;
        json(&self.server_report(&handle, &ResourceSnapshot::default()))
    }

    /// `mgp/servers/logs`.
    ///
    /// # Errors
    /// Unknown server; cancelled while following.
    pub(crate) async fn logs(&self, request: &Request) -> Outcome {
        let logs: servers::Logs = read(request)?;
        let handle = self.find_server(&logs.id)?;
        let lines = handle.log.tail(logs.lines.unwrap_or(DEFAULT_LOG_LINES));
        if !logs.follow {
            let lines = lines.iter().map(to_protocol_line).collect();
            return json(&LogLines { lines });
        }
        let newest = *handle.log.follow().borrow();
        let last_sent = AtomicU64::new(lines.first().map_or(newest, |line| line.seq - 1));
        tokio::select! {
            () = self.follow_log(request, &handle, &last_sent) => json(&LogLines::default()),
            () = request.call.wait_until_cancelled() => Err(Refusal::Cancelled),
        }
    }

    /// Forwards what a server writes after line `last_sent`; resolves when no more lines will come.
    async fn follow_log(&self, request: &Request, handle: &ServerHandle, last_sent: &AtomicU64) {
        let mut newest = handle.log.follow();
        loop {
            self.push_new_lines(request, handle, last_sent);
            if newest.changed().await.is_err() {
                return;
            }
        }
    }

    fn push_new_lines(&self, request: &Request, handle: &ServerHandle, last_sent: &AtomicU64) {
        for new in handle.log.lines_after(last_sent.load(Ordering::Relaxed)) {
            last_sent.store(new.seq, Ordering::Relaxed);
            self.push_log_line(request, handle.id.as_str(), to_protocol_line(&new));
        }
    }

    fn push_log_line(&self, request: &Request, id: &str, line: LogLine) {
        let log = servers::Log {
            id: id.to_owned(),
            line,
        };
        if let Ok(params) = serde_json::to_string(&log) {
            let frame = jsonrpc::notification("notifications/mgp.servers.log", Some(&params));
            request.call.send(frame.into(), Delivery::Lossy);
        }
    }

    fn server_reports(&self, usage: &ResourceSnapshot) -> Vec<Server> {
        let servers = self.servers.load();
        let reports = servers
            .values()
            .map(|handle| self.server_report(handle, usage));
        reports.collect()
    }

    /// A server, with its resource usage if the snapshot has it.
    fn server_report(&self, handle: &Arc<ServerHandle>, usage: &ResourceSnapshot) -> Server {
        let published_catalog = self.catalog.load();
        let counts = published_catalog.offer_counts(&handle.id);
        Server {
            replicas: self.replica_locations(&published_catalog.catalog, &handle.id),
            login: self.logins.wanted_login(&handle.id),
            ..handle.report(counts.unwrap_or_default(), usage)
        }
    }

    fn find_server(&self, id: &str) -> Result<Arc<ServerHandle>, Refusal> {
        let known = self.servers.load();
        ServerId::parse(id)
            .ok()
            .and_then(|id| known.get(&id).cloned())
            .ok_or_else(|| Refusal::UnknownServer(id.to_owned()))
    }
}

fn send_to_server(handle: &ServerHandle, message: ServerMsg) -> Result<(), Refusal> {
    handle.send(message).map_err(|error| match handle.status() {
        status if status.state == LifecycleState::Error => Refusal::BadParams(format!(
            "server {} cannot be started: {}",
            handle.id, status.reason
        )),
        status if status.awaits_operator => {
            Refusal::BadParams(format!("server {} {}", handle.id, status.reason))
        }
        _ => internal_error(error),
    })
}

fn internal_error(error: impl std::fmt::Display) -> Refusal {
    Refusal::Internal(error.to_string())
}

fn to_protocol_line(line: &mgp_transports::log::LogLine) -> LogLine {
    LogLine {
        at_ms: line.at_ms,
        from: match line.author {
            Author::Server => "server".into(),
            Author::Kernel => "kernel".into(),
        },
        text: line.text.to_string(),
    }
}

/// Parses the params of an operator's request, without `_meta` and `trace_id`, which any request may carry.
fn read<T: serde::de::DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    let mut params: serde_json::Map<String, serde_json::Value> =
        mcp::parse_params(request.params.as_deref())?;
    params.remove("_meta");
    params.remove("trace_id");
    serde_json::from_value(params.into()).map_err(|e| Refusal::BadParams(e.to_string()))
}

fn json(value: &impl Serialize) -> Outcome {
    serde_json::to_vec(value)
        .map(Into::into)
        .map_err(internal_error)
}
