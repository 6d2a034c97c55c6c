//! The parts of a kernel, put together: first what stands for its whole life, then what answers.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_callers::agent::supervisor::{Agents, AgentsActor};
use mgp_callers::directory::Directory;
use mgp_callers::registered_agents::RegisteredAgents;
use mgp_callers::request::Routes;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::tasks::{TaskRecord, Tasks};
use mgp_calls::known_names::NameSources;
use mgp_calls::{
    CallStreams, ConfirmationRules, Context, Exposing, Policies, Rates, SiftedLists, ToolCounts,
    Validation,
};
use mgp_discovery::config::LookUp;
use mgp_doors::agent_registry::{AgentRegistryActor, AgentRegistryHandle};
use mgp_doors::bodies::Bodies;
use mgp_doors::reception::Reception;
use mgp_doors::revocation::Revocation;
use mgp_doors::stateless::Stateless;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::policy::access::{Defaults, GrantTable as AccessTable};
use mgp_engine::policy::risk::Caution;
use mgp_engine::servers::health::HealthRules;
use mgp_engine::servers::sandbox;
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{Catalog, Paging};
use mgp_policy::access::{AccessActor, AccessHandle, Books};
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_protocol::ids::AgentId;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::randomness;
use mgp_runtime::task_supervisor::TaskSupervisorHandle;
use mgp_runtime::time::unix_ms;
use mgp_servers::guard::{GuardActor, GuardHandle};
use mgp_servers::sandbox::Sandboxes;
use mgp_servers::server::{Connector, ResourceFigures, ServerTable, Starts};
use mgp_store::audit::AuditHandle;
use mgp_store::trouble::Troubles;
use mgp_sync::Snapshot;
use mgp_tools::catalog::{CatalogActor, CatalogHandle, Shown};
use mgp_tools::events::EventsHandle;
use mgp_tools::registrar::{Background, Names, Registrar, Waiting};
use mgp_tools::search::{Meanings, Program, SearchHandle, SearchOptions};
use mgp_tools::server_events::taken_by;
use mgp_tools::subscriptions::{SubscriptionsActor, SubscriptionsHandle};
use mgp_transports::http::client::Client;
use mgp_transports::http::tls::Tls;
use ractor::{Actor, ActorCell, SpawnErr};
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::CancellationToken;

use super::changes::{access_changed, pending_changed, pins_decided};
use super::options::UpOptions;
use super::{DRAIN, StoredState, data_folder, machine};
use crate::config::{HttpAuth, KernelConfig};
use crate::health::HealthMethods;
use crate::operator::Operator;
use crate::routes::Routing;
use crate::source::ConfigSource;
use crate::tree::{RootActor, ServerParts, TreeActor, TreeHandle};

/// How long the process of the model may take for a text, which it does when nobody else wants the
/// machine: what takes a twentieth of a second of a core may take some seconds of a busy one.
const MODEL_PATIENCE: Duration = Duration::from_secs(60);

/// What a tree that has started gives to the rest of the kernel.
pub(super) struct StartedKernel {
    pub(super) tree: TreeHandle,
    pub(super) guard: GuardHandle,
    pub(super) reception: Reception,
    pub(super) source: Arc<ConfigSource>,
    pub(super) revocation: Arc<Revocation>,
    pub(super) connector: Arc<Connector>,
}

/// Puts a kernel together.
///
/// # Errors
/// An actor that cannot be started.
pub(super) async fn start(
    options: &UpOptions,
    kept: StoredState,
    closing: &CancellationToken,
) -> Result<StartedKernel, SpawnErr> {
    let seal = kept.seal.clone();
    let mark = kept.marks.own().to_owned();
    let kernel = &options.loaded.kernel;
    let connector = Arc::new(connector(options, mark.clone(), kernel.health));
    let parts = Parts::start(options, kept, &connector).await?;
    let guard = guard(&mark).await?;
    let source = Arc::new(ConfigSource::new(options.look_up.clone(), &options.loaded));
    let tree = TreeActor {
        parts: parts.server_parts(&guard.0, &connector),
        servers: parts.servers.clone(),
        source: source.clone(),
        access: parts.access.clone(),
        names: parts.registered.clone(),
        closing: closing.clone(),
        root: parts.root.iter().cloned().chain([guard.1]).collect(),
    };
    let tree = tree.start(&options.loaded).await?;
    let _ = parts.registrar.tree.set(Arc::new(tree.clone()));
    parts.registrar.revive().await;
    let operator = parts.operator(options, &tree, &source, &connector, closing);
    let health = parts.health(connector.clone(), closing);
    let calls = parts.calls(kernel, closing);
    let routes: Arc<dyn Routes> = Arc::new(Routing::new(calls, operator, health));
    let reception = Reception {
        agents: parts.agents,
        bodies: Bodies::new(kernel.http.max_bodies, kernel.limits.max_frame),
        stateless: stateless(seal, &parts.revocation, routes.clone()),
        routes,
        registered_agents: parts.roster.registered_agents,
        directory: parts.directory,
    };
    Ok(StartedKernel {
        tree,
        guard: guard.0,
        reception,
        source,
        revocation: parts.revocation,
        connector,
    })
}

/// What stands for the kernel's whole life: one that falls ends it.
struct Parts {
    directory: Arc<Directory>,
    servers: Arc<ServerTable>,
    shown: Arc<Snapshot<Shown>>,
    subscriptions: SubscriptionsHandle,
    events: EventsHandle,
    catalog: CatalogHandle,
    agents: Agents,
    access: AccessHandle,
    approvals: ApprovalsHandle,
    permissions: PermissionsHandle,
    pins: PinsHandle,
    audit: AuditHandle,
    revocation: Arc<Revocation>,
    roster: AgentRegistryHandle,
    search: SearchHandle,
    registrar: Arc<Registrar>,
    registered: Arc<Names>,
    troubles: Troubles,
    root: Vec<RootActor>,
}

impl Parts {
    async fn start(
        options: &UpOptions,
        kept: StoredState,
        connector: &Arc<Connector>,
    ) -> Result<Self, SpawnErr> {
        let kernel = &options.loaded.kernel;
        let troubles = kept.troubles();
        let table = table(kernel, &kept.books);
        let directory = Arc::new(Directory::new(table.clone()));
        let servers = Arc::new(ServerTable::new(BTreeMap::new()));
        let shown = Arc::new(Snapshot::new(nothing(kernel)));
        let subscriptions = SubscriptionsActor {
            directory: directory.clone(),
            servers: Arc::new(OnceLock::from(servers.clone())),
            shown: shown.clone(),
        };
        let (following, _) = Actor::spawn(None, subscriptions, ()).await?;
        let subscriptions = SubscriptionsHandle::new(Mailbox::new(following.clone()));
        let (events, hub) =
            EventsHandle::start(&directory, &servers, &kept.audit, &connector.figures).await?;
        let access = AccessActor {
            table: table.clone(),
            directory: directory.clone(),
            changed: access_changed(&subscriptions, &events),
            audit: kept.audit.clone(),
        };
        let (access, _) = Actor::spawn(None, access, (kept.books, kept.unaudited)).await?;
        let opening = SearchOptions {
            shown: shown.clone(),
            table: table.clone(),
            servers: servers.clone(),
            meanings: meanings(kernel),
            file: data_folder::vectors_file(&options.data_dir),
            data_dir: options.data_dir.clone(),
        };
        let (search, finder_cell) = opening.open().await?;
        let (catalog, catalog_root) =
            catalog(&shown, &directory, &search, &servers, &events).await?;
        let (agents, _) = Actor::spawn(None, AgentsActor, ()).await?;
        let mut root = Vec::new();
        let following_tasks = supervisor("tasks", &mut root).await?;
        let tasks = tasks(options, &kept.seal, kept.tasks, &directory, following_tasks);
        let revocation = revocation(kernel, &directory, &tasks);
        let (roster, roster_cell) = roster(options, kept.roster, &revocation, &kept.audit).await?;
        root.extend([
            RootActor::lasting("subscriptions", following.get_cell()),
            RootActor::lasting("events", hub),
            catalog_root,
            RootActor::lasting("agents", agents.get_cell()),
            RootActor::lasting("access", access.get_cell()),
            RootActor::lasting("agent_registry", roster_cell),
            finder_root(&search, finder_cell),
        ]);
        let access = AccessHandle::new(Mailbox::new(access), table, kernel.access.reveal);
        let approvals = ApprovalsHandle::new(pending_changed(&subscriptions));
        let audit = kept.audit;
        let folder = options.data_dir.join("pins");
        let pins = PinsHandle::new(
            folder,
            approvals.clone(),
            audit.clone(),
            pins_decided(&servers),
            supervisor("pins", &mut root).await?,
        );
        let waiting = supervisor("permissions", &mut root).await?;
        let (approving, granting) = (approvals.clone(), access.clone());
        let permissions = PermissionsHandle::new(approving, granting, audit.clone(), waiting);
        let registered = kept.registered.names();
        let registrar = Arc::new(Registrar {
            registration: kernel.discovery.registration.clone(),
            background: background(kernel),
            registrations: Mutex::new(kept.registered),
            servers: servers.clone(),
            connector: connector.clone(),
            access: access.clone(),
            approvals: approvals.clone(),
            audit: audit.clone(),
            pins: pins.clone(),
            waiting: Waiting::default(),
            supervisor: supervisor("registrar", &mut root).await?,
            tree: OnceLock::new(),
        });
        Ok(Self {
            registrar,
            registered,
            troubles,
            permissions,
            pins,
            catalog,
            directory,
            servers,
            shown,
            subscriptions,
            events,
            agents,
            access,
            approvals,
            audit,
            revocation,
            roster,
            search,
            root,
        })
    }

    fn server_parts(&self, guard: &GuardHandle, connector: &Arc<Connector>) -> ServerParts {
        ServerParts {
            events: taken_by(
                self.catalog.clone(),
                self.subscriptions.clone(),
                self.events.clone(),
            ),
            catalog: self.catalog.clone(),
            directory: self.directory.clone(),
            guard: guard.clone(),
            connector: connector.clone(),
            permissions: self.permissions.clone(),
            pins: self.pins.clone(),
            audit: self.audit.clone(),
        }
    }

    fn operator(
        &self,
        options: &UpOptions,
        tree: &TreeHandle,
        source: &Arc<ConfigSource>,
        connector: &Connector,
        closing: &CancellationToken,
    ) -> Arc<Operator> {
        Arc::new(Operator {
            figures: connector.figures.clone(),
            servers: self.servers.clone(),
            shown: self.shown.clone(),
            directory: self.directory.clone(),
            audit: self.audit.clone(),
            troubles: self.troubles.clone(),
            approvals: self.approvals.clone(),
            permissions: self.permissions.clone(),
            search: self.search.clone(),
            registrar: self.registrar.clone(),
            tree: tree.clone(),
            data_dir: options.data_dir.clone(),
            source: source.clone(),
            roster: self.roster.clone(),
            name_sources: self.name_sources(&options.loaded.kernel),
            closing: closing.clone(),
        })
    }

    /// Who and what there is, by name: of the kernel's own agents, those that can come in.
    fn name_sources(&self, kernel: &KernelConfig) -> NameSources {
        let open = kernel.http.enabled && kernel.http.auth == HttpAuth::None;
        let anonymous = open.then(|| AgentId::new(AgentId::ANONYMOUS));
        let configured = kernel.socket.users.values().cloned().chain(anonymous);
        NameSources {
            servers: self.servers.clone(),
            registered_agents: self.roster.registered_agents.clone(),
            directory: self.directory.clone(),
            access: self.access.clone(),
            configured: configured.chain([AgentId::new(AgentId::LOCAL)]).collect(),
        }
    }

    fn health(&self, connector: Arc<Connector>, closing: &CancellationToken) -> Arc<HealthMethods> {
        Arc::new(HealthMethods {
            servers: self.servers.clone(),
            directory: self.directory.clone(),
            troubles: self.troubles.clone(),
            connector,
            closing: closing.clone(),
        })
    }

    fn calls(&self, kernel: &KernelConfig, closing: &CancellationToken) -> Arc<Context> {
        Arc::new(Context {
            shown: self.shown.clone(),
            servers: self.servers.clone(),
            name_sources: self.name_sources(kernel),
            sifted: SiftedLists::default(),
            subscriptions: self.subscriptions.clone(),
            events: self.events.clone(),
            directory: self.directory.clone(),
            agents: self.agents.clone(),
            tasks: self.revocation.tasks.clone(),
            answering: kernel.answering.clone(),
            audit: self.audit.clone(),
            streams: CallStreams::default(),
            closing: closing.clone(),
            search: self.search.clone(),
            registrar: self.registrar.clone(),
            exposing: Exposing {
                general: kernel.discovery.general.clone(),
                agents: kernel.discovery.agents.clone(),
                doors: kernel.discovery.doors.clone(),
                budget: kernel.discovery.budget,
                counted: ToolCounts::default(),
            },
            policies: Policies {
                access: self.access.clone(),
                permissions: self.permissions.clone(),
                pins: self.pins.clone(),
                approvals: self.approvals.clone(),
                rates: Rates::new(kernel.rates),
                validation: Validation::default(),
                confirmation: confirmation(kernel),
            },
        })
    }
}

/// What registered servers are started with.
fn background(kernel: &KernelConfig) -> Background {
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

/// What ends every child when the kernel dies, itself one of the parts.
async fn guard(mark: &str) -> Result<(GuardHandle, RootActor), SpawnErr> {
    let guard = GuardActor {
        exe: "/proc/self/exe".into(),
        args: vec!["__guard".into()],
        mark: mark.to_owned(),
    };
    let (guard, _) = Actor::spawn(None, guard, ()).await?;
    let root = RootActor::lasting("guard", guard.get_cell());
    Ok((GuardHandle::new(Mailbox::new(guard)), root))
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
    }
}

/// What calls are decided by before the configuration is in force.
fn table(kernel: &KernelConfig, books: &Books) -> Arc<Snapshot<AccessTable>> {
    let defaults = Defaults {
        kernel: kernel.access.default_policy,
        servers: HashMap::new(),
    };
    let (grants, authority) = (books.grants(), books.authority());
    let table = AccessTable::build(grants, authority, defaults, unix_ms(), 1);
    Arc::new(Snapshot::new(table))
}

/// How a person's yes is had.
fn confirmation(kernel: &KernelConfig) -> ConfirmationRules {
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
fn nothing(kernel: &KernelConfig) -> Shown {
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

fn connector(options: &UpOptions, mark: String, health: HealthRules) -> Connector {
    Connector {
        client: Client::new(Tls::system()),
        version: env!("CARGO_PKG_VERSION").into(),
        mark,
        folder: machine::folder(),
        drain: DRAIN,
        hurry: OnceLock::new(),
        health,
        sandboxes: sandboxes(options),
        starts: Starts::default(),
        figures: ResourceFigures::new(),
    }
}

/// Where servers are that are trusted least, and what nobody opens to them.
fn sandboxes(options: &UpOptions) -> Sandboxes {
    let files = options.loaded.files.iter().map(|file| file.path.clone());
    let look_up = options.look_up.as_ref();
    let trust = look_up.and_then(LookUp::trust_file);
    let secrets = look_up.and_then(LookUp::secrets_folder);
    let kernels = [options.data_dir.clone(), options.socket.clone()];
    let kernels = kernels.into_iter().chain(trust).chain(secrets);
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

/// Whose tasks wait for a person, or follow a call, on behalf of a part of the kernel.
async fn supervisor(
    name: &'static str,
    root: &mut Vec<RootActor>,
) -> Result<TaskSupervisorHandle, SpawnErr> {
    let (handle, cell) = TaskSupervisorHandle::start().await?;
    root.push(RootActor::lasting(name, cell));
    Ok(handle)
}

fn finder_root(search: &SearchHandle, cell: ActorCell) -> RootActor {
    let search = search.clone();
    let restart = move || {
        let search = search.clone();
        async move { search.start().await }
    };
    RootActor::restarted("search", cell, restart)
}

/// What merges what servers offer. Started again, it asks them what they offer.
async fn catalog(
    shown: &Arc<Snapshot<Shown>>,
    directory: &Arc<Directory>,
    search: &SearchHandle,
    servers: &Arc<ServerTable>,
    events: &EventsHandle,
) -> Result<(CatalogHandle, RootActor), SpawnErr> {
    let actor = CatalogActor {
        shown: shown.clone(),
        directory: directory.clone(),
        search: search.clone(),
        events: events.clone(),
    };
    let handle = CatalogHandle::new(shown.clone());
    let cell = handle.start(actor.clone()).await?;
    let (again, servers) = (handle.clone(), servers.clone());
    let restart = move || {
        let (catalog, actor, servers) = (again.clone(), actor.clone(), servers.clone());
        async move { catalog.restart(actor, &servers).await }
    };
    Ok((handle, RootActor::restarted("catalog", cell, restart)))
}

/// Where agents have things under way.
fn revocation(
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

/// Who has a token, and who keeps it.
async fn roster(
    options: &UpOptions,
    before: AgentRegistry,
    revocation: &Arc<Revocation>,
    audit: &AuditHandle,
) -> Result<(AgentRegistryHandle, ActorCell), SpawnErr> {
    let registered_agents = RegisteredAgents::new(before);
    let actor = AgentRegistryActor {
        file: data_folder::roster_file(&options.data_dir),
        registered_agents: registered_agents.clone(),
        revocation: revocation.clone(),
        audit: audit.clone(),
    };
    let (actor, _) = Actor::spawn(None, actor, ()).await?;
    let cell = actor.get_cell();
    Ok((
        AgentRegistryHandle::new(Mailbox::new(actor), registered_agents),
        cell,
    ))
}

fn tasks(
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

fn stateless(seal: SealKey, revocation: &Revocation, routes: Arc<dyn Routes>) -> Arc<Stateless> {
    let tasks = revocation.tasks.clone();
    Arc::new(Stateless {
        routes,
        suspended: revocation.suspended.clone(),
        seal,
        boot: tasks.boot(),
        tasks,
    })
}
