//! The data folder of a kernel: whether there is room in it, what is missing there, and what earlier kernels
//! left in it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use mgp_callers::tasks::{self, TaskRecord};
use mgp_doors::agent_registry;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_mcpl::feature_sets::FeatureSetStore;
use mgp_mcpl::inference::UsedTokens;
use mgp_mcpl::push::{JOURNAL as PUSHES, StoredPushes};
use mgp_mcpl::scopes;
use mgp_mcpl_engine::scopes::approvals::ApprovedScope;
use mgp_policy::access::GrantStore;
use mgp_store::audit::{AuditHandle, LogFolder};
use mgp_store::health::explain_io_error;
use mgp_store::witnesses::{Witness, Witnesses};
use mgp_tools::registrar::Registrations;

use super::options::KernelOptions;
use super::secrets::load_node_key;
use crate::config::HttpAuth;

/// What a kernel must be able to write at its start, in bytes: its keys, some records, a page of each file.
const START_BYTES_MIN: usize = 64 << 10;

/// Sees that the disk takes what a kernel writes at its start: a kernel that cannot write anything down
/// does nothing.
pub(super) fn check_disk_space(data_dir: &Path) -> Result<(), String> {
    let path = data_dir.join("room");
    let tried = fs::write(&path, [0; START_BYTES_MIN]).and_then(|()| File::open(&path)?.sync_all());
    let removed = fs::remove_file(&path);
    tried.and(removed).map_err(|e| {
        let why = explain_io_error(data_dir, &e);
        format!(
            "the kernel needs room for {} KiB there to start: {why}",
            START_BYTES_MIN >> 10
        )
    })
}

/// Files that are missing from a folder that a kernel has run on, each with what that means. Asked before
/// anything is made there.
pub(super) fn missing_files(options: &KernelOptions) -> Vec<String> {
    let data_dir = &options.data_dir;
    if LogFolder::new(data_dir).marker().is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut look = |path: PathBuf, means: &str| {
        if path.try_exists().is_ok_and(|there| !there) {
            found.push(format!("{} is missing: {means}", path.display()));
        }
    };
    let http = &options.loaded.kernel.http;
    if http.enabled && http.auth != HttpAuth::None {
        look(
            data_dir.join("token"),
            "a new one is made, and whoever had the old one needs it; or put a copy of the old one back and start the kernel again",
        );
    }
    look(
        agents_file(data_dir),
        "no agent has a token any more; put a copy back and start the kernel again, or make new ones with `mgp agents add`",
    );
    found
}

/// The journal of registered servers.
pub(super) const REGISTRATIONS_JOURNAL: &str = "registered.journal";
/// Which sets of MCPL were switched.
pub(super) const SETS_FILE: &str = "mcpl/sets.json";
/// Which scopes of MCPL were approved for good.
pub(super) const SCOPES_FILE: &str = "mcpl/scopes.json";
/// The journal of grants.
pub(super) const GRANTS_JOURNAL: &str = "grants.journal";

/// Where that is kept which was granted and denied on this node.
pub(super) fn grants_file(data_dir: &Path) -> PathBuf {
    data_dir.join(GRANTS_JOURNAL)
}

/// What was granted and denied on this node.
pub(super) fn load_replicas(data_dir: &Path, witnesses: &Witnesses) -> Result<GrantStore, String> {
    let (path, witness) = (grants_file(data_dir), witnesses.witness(GRANTS_JOURNAL));
    let books = GrantStore::open_witnessed(&path, load_node_key(data_dir)?, witness);
    let books = books.map_err(|e| e.to_string())?;
    if let Some(cut) = books.torn_tail() {
        tracing::warn!("{cut}");
    }
    Ok(books)
}

/// What lasts of MCPL.
pub(super) struct StoredMcpl {
    /// Where it is.
    pub(super) folder: PathBuf,
    /// Which feature sets the operator switched.
    pub(super) sets: FeatureSetStore,
    /// Which scopes a person approved for good.
    pub(super) scopes: Vec<ApprovedScope>,
    /// The witness of that.
    pub(super) scopes_witness: Witness,
    /// What ids of conversations are made with.
    pub(super) id_key: [u8; 32],
    /// How many tokens servers took today.
    pub(super) tokens: UsedTokens,
    pub(super) push: StoredPushes,
}

/// What was switched and approved of MCPL.
pub(super) fn load_mcpl(
    data_dir: &Path,
    witnesses: &Witnesses,
    audit: &AuditHandle,
) -> Result<StoredMcpl, String> {
    let folder = data_dir.join("mcpl");
    let switched = witnesses.witness(SETS_FILE);
    Ok(StoredMcpl {
        sets: FeatureSetStore::open(data_dir.join(SETS_FILE), switched, audit.clone())?,
        scopes: scopes::load(&data_dir.join(SCOPES_FILE))?,
        scopes_witness: witnesses.witness(SCOPES_FILE),
        id_key: super::secrets::derive_id_key(data_dir)?,
        tokens: UsedTokens::open(&folder).map_err(|why| why.to_string())?,
        push: StoredPushes::open(data_dir, witnesses.witness(PUSHES)).map_err(|e| e.to_string())?,
        folder,
    })
}

/// The servers that were registered while a kernel ran.
pub(super) fn load_registrations(
    data_dir: &Path,
    witnesses: &Witnesses,
) -> Result<Registrations, String> {
    Registrations::open(
        &data_dir.join(REGISTRATIONS_JOURNAL),
        witnesses.witness(REGISTRATIONS_JOURNAL),
    )
}

/// Where the meanings of tools are kept.
pub(super) fn vectors_file(data_dir: &Path) -> PathBuf {
    data_dir.join("vectors")
}

/// Where tasks last.
pub(super) fn tasks_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tasks")
}

/// The tasks of earlier lives.
pub(super) fn load_tasks(data_dir: &Path) -> Result<Vec<TaskRecord>, String> {
    let folder = tasks_folder(data_dir);
    tasks::load(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Where the agents that have a token are kept.
pub(super) fn agents_file(data_dir: &Path) -> PathBuf {
    data_dir.join("agents.json")
}

/// The agents that have a token. The file is made where there is none, so that it can be missed.
pub(super) fn load_agents(data_dir: &Path) -> Result<AgentRegistry, String> {
    let path = agents_file(data_dir);
    let roster = agent_registry::load(&path).map_err(|e| e.to_string())?;
    if !path.exists() {
        agent_registry::create_empty(&path).map_err(|e| explain_io_error(&path, &e))?;
    }
    Ok(roster)
}
