//! Compiled filters of system calls. Compiling takes many times longer than all other work of the daemon for
//! a container. Most containers of a node have the same rules, so the latest filters are cached.

use std::collections::VecDeque;
use std::sync::Arc;

use oci_spec::runtime::LinuxSeccomp;
use proto_seccomp::Filter;
use runtime_blocking::Pool;
use tokio::sync::Mutex;

use crate::blocking::blocking;
use crate::error::{PodError, PodErrorKind};

/// Number of cached filters, the latest first.
const FILTERS_MAX: usize = 32;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Filters(Mutex<VecDeque<(LinuxSeccomp, Arc<Filter>)>>);

impl Filters {
    /// The filter of these rules. Concurrent containers wait for one compilation.
    ///
    /// # Errors
    /// The rules make no filter.
    pub(crate) async fn compiled(&self, pool: &Pool, rules: &LinuxSeccomp) -> Result<Arc<Filter>, PodError> {
        let mut kept = self.0.lock().await;
        let found = kept.iter().position(|(known, _)| known == rules).and_then(|place| kept.remove(place));
        let newest = match found {
            Some(found) => found,
            None => {
                let owned = rules.clone();
                let compile = move || Ok::<_, std::convert::Infallible>(Filter::compile(&owned));
                let compiled = blocking(pool, "compiling the seccomp profile", compile).await?;
                let filter = compiled.map_err(|error| {
                    let text = "security_context.seccomp: the profile makes no filter";
                    PodError::new(PodErrorKind::InvalidArgument, text).because(error)
                })?;
                (rules.clone(), Arc::new(filter))
            }
        };
        let filter = Arc::clone(&newest.1);
        kept.push_front(newest);
        kept.truncate(FILTERS_MAX);
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(number: u32) -> LinuxSeccomp {
        serde_json::from_value(
            serde_json::json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": number }),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn the_latest_filters_are_compiled_once() {
        let (filters, pool) = (Filters::default(), Pool::new("filters", 1));
        let compiled = async |number| filters.compiled(&pool, &rules(number)).await.unwrap();
        let first = compiled(1).await;
        for number in 2..=u32::try_from(FILTERS_MAX).unwrap() {
            compiled(number).await;
            assert!(Arc::ptr_eq(&first, &compiled(1).await));
        }
        let last = compiled(1000).await;
        assert!(Arc::ptr_eq(&last, &compiled(1000).await));
        assert!(Arc::ptr_eq(&first, &compiled(1).await), "the least recently used one goes");
        assert_eq!(filters.0.lock().await.len(), FILTERS_MAX);
    }

    #[tokio::test]
    async fn rules_that_make_no_filter_are_refused_by_their_field() {
        let (filters, pool) = (Filters::default(), Pool::new("filters", 1));
        let error = filters.compiled(&pool, &rules(70_000)).await.unwrap_err();
        assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
        assert!(error.chain().contains("security_context.seccomp") && error.chain().contains("70000"));
    }
}
