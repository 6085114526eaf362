// Does nothing until a signal ends it. The signal needs a handler, since PID 1 ignores a signal's default action.
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
