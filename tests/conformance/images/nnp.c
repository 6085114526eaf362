// Prints the effective uid. Installed setuid root: with no_new_privs the caller's own uid is what it prints.
#include <stdio.h>
#include <unistd.h>

int main(void) {
    printf("Effective uid: %d\n", (int)geteuid());
    return 0;
}
