//! The data folder: free disk space, missing files, and the state of earlier runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use mgp_callers::tasks::{self, TaskRecord};
use mgp_doors::agent_registry;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_mcpl::push::{JOURNAL as PUSHES, StoredPushes};
use mgp_mcpl::{FeatureSetStore, UsedTokens, scopes};
use mgp_mcpl_engine::scopes::approvals::ApprovedScope;
use mgp_policy::GrantStore;
use mgp_store::audit::{AuditHandle, LogFolder};
use mgp_store::{Witness, Witnesses, explain_io_error};
use mgp_tools::registrar::Registrations;

use super::options::KernelOptions;
use super::secrets::load_node_key;
use crate::config::HttpAuth;

/// Bytes that a start must be able to write: keys, some records, and a page of each file.
const START_BYTES_MIN: usize = 64 << 10;

/// Checks that the disk has space for a start: a kernel that cannot write must not act.
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

/// Files that are missing from a folder that a kernel has used, each with the effect of its loss. Called before
/// anything is created there.
pub(super) fn missing_files(options: &KernelOptions) -> Vec<String> {
    let data_dir = &options.data_dir;
    if LogFolder::new(data_dir).marker().is_none() {
        return Vec::new();
    }
    let mut missing = Vec::new();
    let mut check_missing = |path: PathBuf, loss_effect: &str| {
        if path.try_exists().is_ok_and(|found| !found) {
            missing.push(format!("{} is missing: {loss_effect}", path.display()));
        }
    };
    let http = &options.loaded.kernel.http;
    if http.enabled && http.auth != HttpAuth::None {
        check_missing(
            data_dir.join("token"),
            "a new one is made, and whoever had the old one needs it; or put a copy of the old one back and start the kernel again",
        );
    }
    check_missing(
        agents_file(data_dir),
        "no agent has a token any more; put a copy back and start the kernel again, or make new ones with `mgp agents add`",
    );
    missing
}

/// The journal of registered servers.
pub(super) const REGISTRATIONS_JOURNAL: &str = "registered.journal";
/// The feature sets that the operator switched.
pub(super) const SETS_FILE: &str = "mcpl/sets.json";
/// The permanently approved MCPL scopes.
pub(super) const SCOPES_FILE: &str = "mcpl/scopes.json";
/// The journal of grants.
pub(super) const GRANTS_JOURNAL: &str = "grants.journal";

/// The journal of this node's grants and denials.
pub(super) fn grants_file(data_dir: &Path) -> PathBuf {
    data_dir.join(GRANTS_JOURNAL)
}

/// This node's grants and denials.
pub(super) fn load_replicas(data_dir: &Path, witnesses: &Witnesses) -> Result<GrantStore, String> {
    let (path, witness) = (grants_file(data_dir), witnesses.witness(GRANTS_JOURNAL));
    let books = GrantStore::open_witnessed(&path, load_node_key(data_dir)?, witness);
    let books = books.map_err(|e| e.to_string())?;
    if let Some(cut) = books.torn_tail() {
        tracing::warn!("{cut}");
    }
    Ok(books)
}

/// The stored state of MCPL.
pub(super) struct StoredMcpl {
    pub(super) folder: PathBuf,
    /// Feature sets that the operator switched.
    pub(super) sets: FeatureSetStore,
    /// Permanently approved scopes.
    pub(super) scopes: Vec<ApprovedScope>,
    /// The witness of the approved scopes.
    pub(super) scopes_witness: Witness,
    /// The key for the ids of conversations.
    pub(super) id_key: [u8; 32],
    /// Tokens that servers used today.
    pub(super) tokens: UsedTokens,
    pub(super) push: StoredPushes,
}

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

/// The registered servers.
pub(super) fn load_registrations(
    data_dir: &Path,
    witnesses: &Witnesses,
) -> Result<Registrations, String> {
    Registrations::open(
        &data_dir.join(REGISTRATIONS_JOURNAL),
        witnesses.witness(REGISTRATIONS_JOURNAL),
    )
}

/// The embeddings of tools.
pub(super) fn vectors_file(data_dir: &Path) -> PathBuf {
    data_dir.join("vectors")
}

pub(super) fn tasks_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tasks")
}

/// The tasks of earlier runs.
pub(super) fn load_tasks(data_dir: &Path) -> Result<Vec<TaskRecord>, String> {
    let folder = tasks_folder(data_dir);
    tasks::load(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// The agents that have a token.
pub(super) fn agents_file(data_dir: &Path) -> PathBuf {
    data_dir.join("agents.json")
}

/// The sign-ins of agents at the identity provider.
pub(super) fn sign_ins_file(data_dir: &Path) -> PathBuf {
    data_dir.join("sign-ins.json")
}

/// The agents that have a token. The file is created if absent, so that its loss can be noticed.
pub(super) fn load_agents(data_dir: &Path) -> Result<AgentRegistry, String> {
    let path = agents_file(data_dir);
    let roster = agent_registry::load(&path).map_err(|e| e.to_string())?;
    if !path.exists() {
        agent_registry::create_empty(&path).map_err(|e| explain_io_error(&path, &e))?;
    }
    Ok(roster)
}
