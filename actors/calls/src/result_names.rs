//! Which members a result may have: searched for together, as results may be long and most have none of them.

use mgp_json::can_contain_strings;

/// The names in the text of a result, at any depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultNames {
    pub(crate) is_error: bool,
    pub(crate) task_id: bool,
    pub(crate) structured_content: bool,
}

impl ResultNames {
    pub(crate) fn find(result: &[u8]) -> Self {
        let names = ["\"isError\"", "\"taskId\"", "\"structuredContent\""];
        let [is_error, task_id, structured_content] = can_contain_strings(result, names);
        Self {
            is_error,
            task_id,
            structured_content,
        }
    }
}
