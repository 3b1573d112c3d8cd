/* Stands in for NVIDIA's driver library: gives its name to the linker, and answers that there is no device. */
int cuInit(unsigned flags)
{
    (void)flags;
    return 100; /* CUDA_ERROR_NO_DEVICE */
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "this is a stand-in without a device";
    return 0;
}
