// Does nothing until it is told to end. A handler, since as PID 1 it would ignore a signal's default action.
#include <signal.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(0);
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;)
        pause();
}
