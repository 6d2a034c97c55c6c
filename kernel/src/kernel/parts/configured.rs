//! What the configuration says of the parts.

use super::super::options::UpOptions;
use super::super::{DRAIN, data_folder, machine};
use crate::cluster::ClusterNeeds;
use crate::config::KernelConfig;
use mgp_callers::directory::Directory;
use mgp_callers::request::Routes;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::tasks::{TaskRecord, Tasks};
use mgp_calls::ConfirmationRules;
use mgp_cluster::links::LinkTable;
use mgp_cluster::tool_index::{HeldTools, NamedNodes};
use mgp_discovery::config::LookUp;
use mgp_doors::revocation::Revocation;
use mgp_doors::stateless::Stateless;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::{Defaults, GrantTable as AccessTable};
use mgp_engine::policy::risk::Caution;
use mgp_engine::servers::health::HealthRules;
use mgp_engine::servers::sandbox;
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{Catalog, Paging};
use mgp_policy::access::{AccessHandle, Books};
use mgp_runtime::randomness;
use mgp_runtime::task_supervisor::TaskSupervisorHandle;
use mgp_runtime::time::unix_ms;
use mgp_servers::login::{LoginPlace, Logins};
use mgp_servers::sandbox::Sandboxes;
use mgp_servers::server::{Connector, ResourceFigures, ServerTable, Starts};
use mgp_store::audit::AuditHandle;
use mgp_store::witnesses::Witnesses;
use mgp_sync::Snapshot;
use mgp_tools::catalog::Shown;
use mgp_tools::registrar::Background;
use mgp_tools::search::{Meanings, Program, SearchOptions};
use mgp_transports::http::client::Client;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// How long the process of the model may take for a text, which it does when nobody else wants the
/// machine: what takes a twentieth of a second of a core may take some seconds of a busy one.
const MODEL_PATIENCE: Duration = Duration::from_secs(60);

/// What registered servers are started with.
pub(super) fn background(kernel: &KernelConfig) -> Background {
    Background {
        limits: kernel.limits.clone(),
        tools: kernel.tools.clone(),
        permissions: kernel.permissions.clone(),
        sandbox: sandbox::SandboxRules {
            read: kernel.discovery.registered.read.clone(),
            write: kernel.discovery.registered.write.clone(),
            ..kernel.sandbox.clone()
        },
        interpreters: kernel.discovery.registered.interpreters.clone(),
    }
}

/// What gives texts their meaning.
fn meanings(kernel: &KernelConfig) -> Meanings {
    Meanings {
        embedding: kernel.discovery.embedding(),
        program: Program {
            exe: "/proc/self/exe".into(),
            args: vec!["__embed".into()],
            patience: MODEL_PATIENCE,
        },
        idle: kernel.discovery.model_idle,
        outbound: kernel.network.outbound(),
    }
}

/// What calls are decided by before the configuration is in force.
pub(super) fn table(kernel: &KernelConfig, books: &Books) -> Arc<Snapshot<AccessTable>> {
    let defaults = Defaults {
        kernel: kernel.access.default_policy,
        servers: HashMap::new(),
    };
    let (grants, authority) = (books.grants(), books.authority());
    let table = AccessTable::build(grants, authority, defaults, unix_ms(), 1);
    let sets = Arc::new(kernel.sets.clone());
    Arc::new(Snapshot::new(table.with_sets(sets, 1)))
}

/// How a person's yes is had.
pub(super) fn confirmation(kernel: &KernelConfig) -> ConfirmationRules {
    let asked = &kernel.confirmation;
    ConfirmationRules {
        caution: Caution {
            confirm_moderate: asked.moderate,
        },
        patience: asked.timeout,
        operator_queue: asked.operator_queue,
    }
}

/// What is offered before any server is connected.
pub(super) fn nothing(kernel: &KernelConfig) -> Shown {
    let size = kernel.lists.page_size.try_into();
    Shown {
        catalog: Arc::new(Catalog::empty(Paging {
            size: size.unwrap_or(NonZeroUsize::MIN),
            key: CursorKey::new(randomness::bytes()),
        })),
        peers: BTreeMap::new(),
        fetched: BTreeMap::new(),
        replaced: CancellationToken::new(),
    }
}

pub(super) fn connector(options: &UpOptions, mark: String, health: HealthRules) -> Connector {
    let outbound = options.loaded.kernel.network.outbound();
    Connector {
        client: Client::new(outbound.clone()),
        logins: Arc::new(Logins::new(LoginPlace {
            store: options.secret_store(),
            outbound,
        })),
        version: env!("CARGO_PKG_VERSION").into(),
        mark,
        folder: machine::folder(),
        drain: DRAIN,
        hurry: OnceLock::new(),
        health,
        sandboxes: sandboxes(options),
        starts: Starts::default(),
        figures: ResourceFigures::new(),
        links: Arc::new(Snapshot::new(LinkTable::default())),
        held: Arc::new(Snapshot::new(HeldTools::default())),
    }
}

/// Where servers are that are trusted least, and what nobody opens to them.
pub(super) fn sandboxes(options: &UpOptions) -> Sandboxes {
    let files = options.loaded.files.iter().map(|file| file.path.clone());
    let look_up = options.look_up.as_ref();
    let trust = look_up.and_then(LookUp::trust_file);
    let secrets = look_up.and_then(LookUp::secrets_folder);
    let kernels = [options.data_dir.clone(), options.socket.clone()];
    let sealed = look_up.and_then(LookUp::sealed_folder);
    let kernels = kernels
        .into_iter()
        .chain(trust)
        .chain(secrets)
        .chain(sealed);
    let kernels = kernels.chain(options.record_folders.iter().cloned());
    let written = options.loaded.servers.iter().flatten();
    let written = written.flat_map(|server| &server.sandbox.write);
    let written = written.chain(&options.loaded.kernel.discovery.registered.write);
    Sandboxes {
        exe: "/proc/self/exe".into(),
        folder: options.data_dir.join("sandbox"),
        kernels: files.chain(kernels).collect(),
        home: std::env::home_dir(),
        written: std::sync::Mutex::new(written.cloned().collect()),
        machine: OnceCell::new(),
    }
}

/// Where agents have things under way.
pub(super) fn revocation(
    kernel: &KernelConfig,
    directory: &Arc<Directory>,
    tasks: &Arc<Tasks>,
) -> Arc<Revocation> {
    Arc::new(Revocation {
        directory: directory.clone(),
        suspended: SuspendedCalls::new(kernel.questions.answer_timeout),
        tasks: tasks.clone(),
        sessions: OnceLock::new(),
    })
}

pub(super) fn tasks(
    options: &UpOptions,
    seal: &SealKey,
    before: Vec<TaskRecord>,
    directory: &Arc<Directory>,
    supervisor: TaskSupervisorHandle,
) -> Arc<Tasks> {
    let folder = data_folder::tasks_folder(&options.data_dir);
    let boot = u64::from_le_bytes(randomness::bytes());
    let patience = options.loaded.kernel.questions.answer_timeout;
    Tasks::new(
        seal.clone(),
        boot,
        patience,
        folder,
        before,
        directory.clone(),
        supervisor,
    )
}

pub(super) fn stateless(
    seal: SealKey,
    revocation: &Revocation,
    routes: Arc<dyn Routes>,
) -> Arc<Stateless> {
    let tasks = revocation.tasks.clone();
    Arc::new(Stateless {
        routes,
        suspended: revocation.suspended.clone(),
        seal,
        boot: tasks.boot(),
        tasks,
    })
}

/// What the index of tools is opened with.
pub(super) fn finder(
    options: &UpOptions,
    shown: &Arc<Snapshot<Shown>>,
    table: &Arc<Snapshot<AccessTable>>,
    servers: &Arc<ServerTable>,
) -> SearchOptions {
    SearchOptions {
        shown: shown.clone(),
        table: table.clone(),
        servers: servers.clone(),
        meanings: meanings(&options.loaded.kernel),
        file: data_folder::vectors_file(&options.data_dir),
        data_dir: options.data_dir.clone(),
    }
}

/// What this node's part in a cluster is started with.
pub(super) fn needs<'a>(
    options: &'a UpOptions,
    key: NodeKey,
    witnesses: Witnesses,
    connector: &'a Connector,
    servers: &Arc<ServerTable>,
    (access, audit): (&AccessHandle, &AuditHandle),
) -> ClusterNeeds<'a> {
    ClusterNeeds {
        key,
        config: &options.loaded.kernel.cluster,
        data_dir: options.data_dir.clone(),
        witnesses,
        connector,
        names: Arc::new(Snapshot::new(NamedNodes::default())),
        servers: servers.clone(),
        access: access.clone(),
        audit: audit.clone(),
    }
}
