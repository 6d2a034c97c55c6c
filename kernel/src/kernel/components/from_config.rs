//! Builds components from the configuration.

use super::super::change_events::pending_change_sink;
use super::super::options::KernelOptions;
use super::super::{SERVER_DRAIN_TIMEOUT, data_folder, machine};
use super::shared::SharedComponents;
use crate::cluster::ClusterDeps;
use crate::config::{HttpAuth, KernelConfig};
use mgp_callers::Directory;
use mgp_callers::request::Routes;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::tasks::{TaskRecord, Tasks};
use mgp_calls::ConfirmationRules;
use mgp_cluster::links::LinkTable;
use mgp_cluster::{PeerTools, PublishedNames};
use mgp_discovery::ConfigLookup;
use mgp_doors::{Broker, BrokerSettings, KeySource, Revocation, Stateless};
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::broker::assertions::ProviderPolicy;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::risk::ConfirmationPolicy;
use mgp_engine::servers::health::HealthCheckConfig;
use mgp_engine::servers::sandbox;
use mgp_platform::processes;
use mgp_runtime::{TaskSupervisorHandle, randomness};
use mgp_servers::sandbox::Sandboxes;
use mgp_servers::{Connector, LoginBackend, Logins, ProcessSpawner, ResourceMonitor};
use mgp_store::Witnesses;
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::registrar::RegistrationDefaults;
use mgp_tools::search::{EmbeddingOptions, Program, SearchOptions};
use mgp_transports::http::client::Client;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::OnceCell;

/// Limit for the embedding of one text. The process runs at low priority: what takes 50 ms of an idle
/// core may take seconds on a busy one.
const MODEL_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn registration_defaults(kernel: &KernelConfig) -> RegistrationDefaults {
    RegistrationDefaults {
        limits: kernel.limits.servers.clone(),
        tools: kernel.tools.clone(),
        permissions: kernel.permissions.clone(),
        sandbox: sandbox::SandboxConfig {
            read: kernel.discovery.registered.read.clone(),
            write: kernel.discovery.registered.write.clone(),
            ..kernel.sandbox.clone()
        },
        interpreters: kernel.discovery.registered.interpreters.clone(),
    }
}

fn embedding_options(kernel: &KernelConfig) -> EmbeddingOptions {
    EmbeddingOptions {
        embedding: kernel.discovery.embedding(),
        program: Program {
            exe: processes::own_program(),
            args: vec!["__embed".into()],
            timeout: MODEL_TIMEOUT,
        },
        idle: kernel.discovery.model_idle,
        outbound: kernel.network.outbound(),
    }
}

pub(super) fn confirmation_rules(kernel: &KernelConfig) -> ConfirmationRules {
    let config = &kernel.confirmation;
    ConfirmationRules {
        caution: ConfirmationPolicy {
            confirm_moderate: config.moderate,
        },
        timeout: config.timeout,
        operator_queue: config.operator_queue,
    }
}

pub(super) fn new_connector(
    options: &KernelOptions,
    mark: String,
    health: HealthCheckConfig,
) -> Connector {
    let outbound = options.loaded.kernel.network.outbound();
    Connector {
        client: Client::new(outbound.clone()),
        logins: Arc::new(Logins::new(LoginBackend {
            store: options.secret_store(),
            outbound,
        })),
        version: env!("CARGO_PKG_VERSION").into(),
        mark,
        folder: machine::start_folder(),
        drain_timeout: SERVER_DRAIN_TIMEOUT,
        shutdown_drain_timeout: OnceLock::new(),
        health,
        sandboxes: new_sandboxes(options),
        spawner: ProcessSpawner::default(),
        resource_usage: ResourceMonitor::new(),
        links: Arc::new(Snapshot::new(LinkTable::default())),
        peer_tools: Arc::new(Snapshot::new(PeerTools::default())),
    }
}

/// The sandboxes of servers, and the paths that no sandbox opens.
fn new_sandboxes(options: &KernelOptions) -> Sandboxes {
    let files = options.loaded.files.iter().map(|file| file.path.clone());
    let look_up = options.look_up.as_ref();
    let trust = look_up.and_then(ConfigLookup::trust_file);
    let secrets = look_up.and_then(ConfigLookup::secrets_folder);
    let sealed = look_up.and_then(ConfigLookup::sealed_folder);
    let kernel_paths = [options.data_dir.clone(), options.socket.clone()]
        .into_iter()
        .chain(trust)
        .chain(secrets)
        .chain(sealed)
        .chain(options.record_folders.iter().cloned());
    let servers = options.loaded.servers.iter().flatten();
    let writable = servers.flat_map(|server| &server.sandbox.write);
    let writable = writable.chain(&options.loaded.kernel.discovery.registered.write);
    Sandboxes {
        exe: processes::own_program(),
        folder: options.data_dir.join("sandbox"),
        kernel_paths: files.chain(kernel_paths).collect(),
        home: std::env::home_dir(),
        writable_folders: std::sync::Mutex::new(writable.cloned().collect()),
        machine: OnceCell::new(),
    }
}

/// The source of the issuer's keys.
pub(in crate::kernel) fn issuer_keys(kernel: &KernelConfig) -> KeySource {
    let (config, outbound) = (&kernel.oauth, kernel.network.outbound());
    match (&config.jwks_file, &config.jwks_url) {
        (Some(file), _) => KeySource::File(file.clone()),
        (None, Some(url)) => KeySource::Url(Client::new(outbound), url.clone()),
        (None, None) => KeySource::Issuer(Client::new(outbound)),
    }
}

/// The broker, if it is configured.
pub(super) fn new_broker(
    options: &KernelOptions,
    seal: &SealKey,
    audit: &AuditHandle,
) -> Option<Arc<Broker>> {
    let kernel = &options.loaded.kernel;
    if !kernel.http.enabled || kernel.http.auth != HttpAuth::OAuth {
        return None;
    }
    let (oauth, broker) = (&kernel.oauth, kernel.oauth.broker.as_ref()?);
    let policy = ProviderPolicy {
        issuer: oauth.issuer.clone(),
        client_id: broker.client_id.clone(),
        algorithms: oauth.algorithms.clone(),
        agent_claim: oauth.agent_claim.clone(),
        required_claims: broker.require_claims.clone(),
        groups: oauth.groups.clone(),
    };
    let secret = &broker.client_secret.0;
    let settings = BrokerSettings {
        policy,
        client_secret: Some(secret.clone()).filter(|secret| !secret.is_empty()),
        scopes: broker.scopes.clone(),
        clients: broker.clients.0.clone(),
        session: broker.session,
        require_dpop: oauth.require_dpop,
        keys: issuer_keys(kernel),
        file: data_folder::sign_ins_file(&options.data_dir),
        outbound: kernel.network.outbound(),
    };
    Some(Broker::new(settings, seal.clone(), audit.clone()))
}

pub(super) fn new_revocation(
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

pub(super) fn new_tasks(
    options: &KernelOptions,
    seal: &SealKey,
    stored: Vec<TaskRecord>,
    directory: &Arc<Directory>,
    supervisor: TaskSupervisorHandle,
) -> Arc<Tasks> {
    let folder = data_folder::tasks_folder(&options.data_dir);
    let boot = u64::from_le_bytes(randomness::random_bytes());
    let answer_timeout = options.loaded.kernel.questions.answer_timeout;
    Tasks::new(
        seal.clone(),
        boot,
        answer_timeout,
        folder,
        stored,
        directory.clone(),
        supervisor,
    )
}

pub(super) fn new_stateless(
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

pub(super) fn search_options(options: &KernelOptions, shared: &SharedComponents) -> SearchOptions {
    SearchOptions {
        published: shared.catalog_snapshot.clone(),
        table: shared.access_table.clone(),
        servers: shared.servers.clone(),
        embedding: embedding_options(&options.loaded.kernel),
        file: data_folder::vectors_file(&options.data_dir),
        data_dir: options.data_dir.clone(),
    }
}

pub(super) fn cluster_deps<'a>(
    options: &'a KernelOptions,
    key: NodeKey,
    witnesses: Witnesses,
    connector: &'a Connector,
    shared: &SharedComponents,
) -> ClusterDeps<'a> {
    ClusterDeps {
        key,
        config: &options.loaded.kernel.cluster,
        data_dir: options.data_dir.clone(),
        witnesses,
        connector,
        names: Arc::new(Snapshot::new(PublishedNames::default())),
        servers: shared.servers.clone(),
        access: shared.access.clone(),
        audit: shared.audit.clone(),
        pending_changed: pending_change_sink(&shared.subscriptions, &shared.pending_changes),
    }
}
