//! The dashboard and the alerts of `dist/monitoring` match the code: each query names metrics, labels and
//! values of the code, each metric is on the dashboard, and each alert has the texts for an operator.
//! `promtool` checks the syntax of queries.

mod alerts;
mod board;
mod query;
mod vocabulary;

pub use self::alerts::{ALERTS, Alert, TESTS, alerts, check_alerts, check_tests};
pub use self::board::{BOARD, Panel, Query, check_shape, panels};
pub use self::vocabulary::Vocabulary;
