//! Calls through the layer, to our services and to an upstream on a socket. Both are fakes: they give the
//! answers set by a test, and record their requests.

mod calls;
mod fake;
mod images;
mod lists;
mod world;
