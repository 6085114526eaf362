//! The board and the alerts of `dist/monitoring` are about what the code serves: each query names metrics, labels and values that the
//! code has, each metric is on the board, and each alert says what an operator needs. The syntax of queries is `promtool`'s to judge.

mod alerts;
mod board;
mod query;
mod vocabulary;

pub use self::alerts::{ALERTS, Alert, TESTS, alerts, check_alerts, check_tests};
pub use self::board::{BOARD, Panel, Query, check_shape, panels};
pub use self::vocabulary::Vocabulary;
