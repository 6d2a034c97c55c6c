//! What must hold in every run: one file for each invariant.

pub(crate) mod acknowledged_entries_last;
pub(crate) mod allows_end_early;
pub(crate) mod calls_need_a_grant;
mod calls_run_once;
pub(crate) mod leases_close;
pub(crate) mod members_converge;
pub(crate) mod revoke_answers_hold;
pub(crate) mod revokes_beat_grants;
pub(crate) mod revokes_last;
