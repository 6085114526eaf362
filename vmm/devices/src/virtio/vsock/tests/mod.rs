//! The device as a driver and host programs meet it, and a connection under random use.

mod connection;
mod driver;
mod guest;
mod limits;
mod malformed;
mod save;
mod streams;
mod throughput;
